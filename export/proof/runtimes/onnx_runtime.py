"""ONNX Runtime as a backend, with the proof of where its nodes ran."""

import tempfile
from pathlib import Path
from typing import Any

import onnx
import onnxruntime as ort
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors

from export.contract import ATTENTION_MASK, INPUT_IDS
from export.node_names import all_nodes
from export.onnx_export import read_onnx
from export.proof.placement import CPU_PROVIDER, PROVIDERS, Assignment, judge_placement
from export.proof.precision import FLOAT32
from export.proof.runtimes.base import THREADS, Array, BackendError, Ids, Read, Runtime, last_line

# ONNX Runtime's errors share no base class of their own.
_ORT_ERRORS: tuple[type[Exception], ...] = (
    *(error for error in vars(ort_errors).values() if isinstance(error, type) and issubclass(error, Exception)),
    RuntimeError,
    ValueError,
)
_FLOAT_TYPES = frozenset(onnx.TensorProto.DataType.Value(name) for name in ("FLOAT", "FLOAT16", "BFLOAT16", "DOUBLE"))
# What fails is raised too, and told once.
_FATAL_ONLY = 4


class OnnxRuntime(Runtime):
    """An ONNX Runtime session on one provider, with the CPU for shape arithmetic."""

    def __init__(
        self,
        name: str,
        model: bytes,
        *,
        provider: str,
        level: ort.GraphOptimizationLevel,
        threads: int = THREADS,
        precision: str = FLOAT32,
    ) -> None:
        """Load a model and record where its nodes were put.

        Raises:
            BackendError: if ONNX Runtime refuses the model or does not give the provider.
        """
        self.name = name
        self.precision = precision
        self.provider = provider
        self.level = level
        self.threads = threads
        asked = PROVIDERS[provider]
        providers = session_providers(provider)
        options = providers[0][1]
        try:
            self._session = _open_session(model, _session_options(level, threads), providers)
            given = self._session.get_providers()[0]
            if given != asked:
                raise BackendError(f"asked {asked}, ONNX Runtime gave {given}")
            self.placement = judge_placement(
                _read_assignments(self._session, model, level, providers),
                asked,
                options=self._session.get_provider_options()[asked],
                required_options=options,
            )
        except _ORT_ERRORS as error:
            raise BackendError(last_line(error)) from error

    def run(self, input_ids: Ids, attention_mask: Ids) -> Array:
        """See `Runtime`."""
        try:
            (logits,) = self._session.run(None, {INPUT_IDS: input_ids, ATTENTION_MASK: attention_mask})
        except _ORT_ERRORS as error:
            raise BackendError(last_line(error)) from error
        result: Array = logits
        return result


LEVELS = {
    "off": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
}


def load_onnx_runtime(
    name: str, read: Read, *, file: str, provider: str, level: str, threads: int = THREADS, precision: str = FLOAT32
) -> Runtime:
    """Load a model file at an optimisation level, a key of LEVELS; the rest is as for `OnnxRuntime`."""
    return OnnxRuntime(name, read(file), provider=provider, level=LEVELS[level], threads=threads, precision=precision)


def run_outputs(
    model: bytes, names: list[str], feed: dict[str, Array], *, level: ort.GraphOptimizationLevel, provider: str
) -> dict[str, Array]:
    """Run a model once and return some of its outputs by name.

    Raises:
        BackendError: if ONNX Runtime refuses the model or can't run it.
    """
    try:
        session = _open_session(model, _session_options(level), session_providers(provider))
        return dict(zip(names, session.run(names, feed), strict=True)) if names else {}
    except _ORT_ERRORS as error:
        raise BackendError(last_line(error)) from error


def session_providers(provider: str) -> list[tuple[str, dict[str, str]]]:
    """Return what is asked of ONNX Runtime for a provider, a key of PROVIDERS."""
    asked = PROVIDERS[provider]
    # TF32 makes CUDA differ by 1e-3, and it is on by default.
    options = {"use_tf32": "0"} if provider == "cuda" else {}
    return [(asked, options), (CPU_PROVIDER, {})] if asked != CPU_PROVIDER else [(asked, options)]


def _open_session(model: bytes, options: ort.SessionOptions, providers: list[Any]) -> ort.InferenceSession:
    # Refuses a loop: opening alone would run one of constants.
    read_onnx(model)
    return ort.InferenceSession(model, options, providers=providers)


def _session_options(level: ort.GraphOptimizationLevel, threads: int = THREADS) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    options.log_severity_level = _FATAL_ONLY
    options.intra_op_num_threads = threads
    # Threads that wait by spinning take the cores from whoever else works.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    return options


def _read_assignments(
    session: ort.InferenceSession, model: bytes, level: ort.GraphOptimizationLevel, providers: list[Any]
) -> list[Assignment]:
    if not hasattr(session, "get_provider_graph_assignment_info"):
        raise BackendError(f"onnxruntime {ort.__version__} can't say where nodes run; 1.24.1 or newer can")
    yields_float = _float_nodes(model, level, providers)
    return [
        Assignment(
            node=node.name,
            operator=node.op_type,
            provider=subgraph.ep_name,
            yields_float=yields_float.get(node.name, True),
        )
        for subgraph in session.get_provider_graph_assignment_info()
        for node in subgraph.get_nodes()
    ]


def _float_nodes(model: bytes, level: ort.GraphOptimizationLevel, providers: list[Any]) -> dict[str, bool]:
    """Say of every node of the graph, as it is when nodes are assigned, whether it yields a float tensor."""
    # Assignment comes after the basic optimisations and before the others.
    if level != ort.GraphOptimizationLevel.ORT_DISABLE_ALL:
        level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options = _session_options(level)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "assigned.onnx"
        options.optimized_model_filepath = str(file)
        ort.InferenceSession(model, options, providers=providers)
        assigned = onnx.load_from_string(file.read_bytes())
    typed = onnx.shape_inference.infer_shapes(assigned).graph
    types = {value.name: value.type for value in (*typed.input, *typed.value_info, *typed.output)}
    return {
        node.name: any(_is_float(types.get(name)) for name in node.output if name) for node in all_nodes(assigned.graph)
    }


def _is_float(value: onnx.TypeProto | None) -> bool:
    return value is None or not value.HasField("tensor_type") or value.tensor_type.elem_type in (0, *_FLOAT_TYPES)
