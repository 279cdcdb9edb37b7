"""Everything that can answer for a model, behind one interface: eager PyTorch, the TorchScript file, the ONNX file.

Model files come as bytes, so that what is judged is what was hashed. One table, BACKENDS, holds a row for each backend.
Asked for CUDA where it can't run is an error that says what is missing: nothing falls back.
"""

import contextlib
import ctypes
import io
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
import torch
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors

from export.contract import ATTENTION_MASK, INPUT_IDS
from export.errors import FerryError
from export.model import CONFIG_FILE, WEIGHTS_FILE, restore_model
from export.onnx_export import ONNX_FILE
from export.proof.placement import CPU_PROVIDER, PROVIDERS, Assignment, Placement, judge_placement
from export.torchscript import TORCHSCRIPT_FILE, load_torchscript

Array = npt.NDArray[Any]
Ids = npt.NDArray[np.int64]
Read = Callable[[str], bytes]

# One thread on every backend: sums come in one order, so the record of a proof does not depend on the machine's cores,
# and two libraries' pools do not wait for each other (that made the grid ten times slower).
THREADS = 1

REFERENCE = "reference"
EAGER = "eager"
TORCHSCRIPT = "torchscript"

_TORCH_ERRORS = (RuntimeError, ValueError, IndexError, TypeError)
# ONNX Runtime's errors share no base class of their own.
_ORT_ERRORS: tuple[type[Exception], ...] = (
    *(error for error in vars(ort_errors).values() if isinstance(error, type) and issubclass(error, Exception)),
    RuntimeError,
    ValueError,
)
_FLOAT_TYPES = frozenset(onnx.TensorProto.DataType.Value(name) for name in ("FLOAT", "FLOAT16", "BFLOAT16", "DOUBLE"))
_ERRORS_ONLY = 3


class BackendError(FerryError):
    """A backend could not load its file or could not run an input."""


class Runtime(Protocol):
    """A loaded model. Callers check the inputs against the contract first, as a loader does."""

    @property
    def name(self) -> str:
        """Its name in the table of backends."""

    def run(self, input_ids: Ids, attention_mask: Ids) -> Array:
        """Return the logits, (batch, labels) or (batch, sequence, labels), for ids and mask (batch, sequence) int64.

        Raises:
            BackendError: if the backend fails.
        """

    @property
    def placement(self) -> Placement | None:
        """Where the nodes ran; None for a backend that has no providers."""


@dataclass(frozen=True, kw_only=True)
class Backend:
    """One row of the table: a name, the provider it needs (a key of PROVIDERS), and how it loads the files it needs."""

    name: str
    provider: str
    load: Callable[[Read], Runtime]


class TorchRuntime:
    """A torch module on the CPU, eager or scripted."""

    placement = None

    def __init__(self, name: str, module: torch.nn.Module) -> None:
        """Take a module in eval mode."""
        self.name = name
        self._module = module

    def run(self, input_ids: Ids, attention_mask: Ids) -> Array:
        """See `Runtime`."""
        try:
            with torch.inference_mode():
                logits = self._module(torch.from_numpy(input_ids), torch.from_numpy(attention_mask))
        except _TORCH_ERRORS as error:
            raise BackendError(_last_line(error)) from error
        if not isinstance(logits, torch.Tensor):
            raise BackendError(f"the output must be one tensor; got {type(logits).__name__}")
        result: Array = logits.numpy()
        return result


class OnnxRuntime:
    """An ONNX Runtime session on one provider, with the CPU for shape arithmetic."""

    def __init__(self, name: str, model: bytes, *, provider: str, level: ort.GraphOptimizationLevel) -> None:
        """Load a model and record where its nodes were put.

        Raises:
            BackendError: if ONNX Runtime refuses the model or does not give the provider.
        """
        self.name = name
        asked = PROVIDERS[provider]
        # TF32 makes CUDA differ by 1e-3, and it is on by default.
        options = {"use_tf32": "0"} if provider == "cuda" else {}
        providers = [(asked, options), (CPU_PROVIDER, {})] if asked != CPU_PROVIDER else [(asked, options)]
        try:
            self._session = ort.InferenceSession(model, _session_options(level), providers=providers)
            given = self._session.get_providers()[0]
            if given != asked:
                raise BackendError(f"asked {asked}, ONNX Runtime gave {given}")
            self._placement = judge_placement(
                _read_assignments(self._session, model, level, providers),
                asked,
                options=self._session.get_provider_options()[asked],
                required_options=options,
            )
        except _ORT_ERRORS as error:
            raise BackendError(_last_line(error)) from error

    @property
    def placement(self) -> Placement:
        """See `Runtime`."""
        return self._placement

    def run(self, input_ids: Ids, attention_mask: Ids) -> Array:
        """See `Runtime`."""
        try:
            (logits,) = self._session.run(None, {INPUT_IDS: input_ids, ATTENTION_MASK: attention_mask})
        except _ORT_ERRORS as error:
            raise BackendError(_last_line(error)) from error
        result: Array = logits
        return result


@contextlib.contextmanager
def one_torch_thread() -> Iterator[None]:
    """Run the block's torch operators on one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def load_reference(read: Read) -> Runtime:
    """Load the reference: the eager model in float64.

    Raises:
        BackendError: if the configuration and the weights do not make a model.
    """
    return TorchRuntime(REFERENCE, load_eager_model(read).double())


def load_eager_model(read: Read) -> torch.nn.Module:
    """Build the model that config.json and model.safetensors describe, in eval mode.

    Raises:
        BackendError: if they do not make a model.
    """
    try:
        model: torch.nn.Module = restore_model(json.loads(read(CONFIG_FILE)), read(WEIGHTS_FILE))
    except ValueError as error:
        raise BackendError(str(error)) from error
    return model


def _load_eager(read: Read) -> Runtime:
    return TorchRuntime(EAGER, load_eager_model(read))


def _load_torchscript(read: Read) -> Runtime:
    try:
        module, _ = load_torchscript(read(TORCHSCRIPT_FILE))
    except ValueError as error:
        raise BackendError(str(error)) from error
    return TorchRuntime(TORCHSCRIPT, module)


_LEVELS = {
    "off": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
}


def _onnxruntime(provider: str, level: str) -> Backend:
    name = f"onnxruntime-{provider}-{level}"
    return Backend(
        name=name,
        provider=provider,
        load=lambda read: OnnxRuntime(name, read(ONNX_FILE), provider=provider, level=_LEVELS[level]),
    )


BACKENDS = (
    Backend(name=EAGER, provider="cpu", load=_load_eager),
    Backend(name=TORCHSCRIPT, provider="cpu", load=_load_torchscript),
    _onnxruntime("cpu", "off"),
    _onnxruntime("cpu", "basic"),
    _onnxruntime("cpu", "all"),
    _onnxruntime("cuda", "all"),
)


def open_runtime(name: str, read: Read) -> Runtime:
    """Load a backend of the table from the files it needs.

    Args:
        name: the backend's name.
        read: gives the bytes of a file by its name.

    Raises:
        ValueError: if there is no such backend.
        BackendError: if the backend can't load its file.
    """
    for backend in BACKENDS:
        if backend.name == name:
            return backend.load(read)
    raise ValueError(f"the backend must be one of {', '.join(backend.name for backend in BACKENDS)}; got {name}.")


def select_backends(providers: Sequence[str]) -> list[Backend]:
    """Return the rows of the table for the providers asked for; the CPU is always among them.

    Raises:
        ValueError: if a provider is unknown, or CUDA is asked for and can't run; the message says what is missing.
    """
    for provider in providers:
        if provider not in PROVIDERS:
            raise ValueError(f"the provider must be one of {', '.join(PROVIDERS)}; got {provider}.")
    if "cuda" in providers:
        missing = missing_for_cuda()
        if missing:
            raise ValueError(
                f"the provider cuda was asked for and can't run here: {'; '.join(missing)}. "
                "Supply what is missing, or ask for cpu."
            )
    return [backend for backend in BACKENDS if backend.provider in {"cpu", *providers}]


def missing_for_cuda() -> list[str]:
    """Say what ONNX Runtime lacks to run on CUDA here; empty if it lacks nothing."""
    missing = []
    if PROVIDERS["cuda"] not in ort.get_available_providers():
        missing.append(f"onnxruntime {ort.__version__} was built without CUDA (install onnxruntime-gpu)")
    else:
        missing += _missing_provider_library()
    missing += _missing_device()
    return missing


def _missing_provider_library() -> list[str]:
    # Finds the CUDA libraries of NVIDIA's wheels; it prints what it does not find, and the loader below says it better.
    with contextlib.redirect_stdout(io.StringIO()):
        ort.preload_dlls()
    folder = Path(ort_errors.__file__).parent
    prefix, suffix = ("", ".dll") if sys.platform == "win32" else ("lib", ".so")
    for name in ("onnxruntime_providers_shared", "onnxruntime_providers_cuda"):
        library = f"{prefix}{name}{suffix}"
        try:
            ctypes.CDLL(str(folder / library), mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            return [f"ONNX Runtime's {library} can't be loaded ({str(error).replace(str(folder), '').lstrip('/')})"]
    return []


def _missing_device() -> list[str]:
    library = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        driver = ctypes.CDLL(library)
    except OSError:
        return [f"there is no NVIDIA driver ({library} can't be loaded)"]
    status = driver.cuInit(0)
    count = ctypes.c_int(0)
    if status == 0:
        status = driver.cuDeviceGetCount(ctypes.byref(count))
    if status != 0 or count.value == 0:
        return [f"the NVIDIA driver finds no device (status {status}, {count.value} devices)"]
    return []


def _session_options(level: ort.GraphOptimizationLevel) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    options.log_severity_level = _ERRORS_ONLY
    options.intra_op_num_threads = THREADS
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
        node.name: any(_is_float(types.get(name)) for name in node.output if name)
        for node in _all_nodes(assigned.graph)
    }


def _is_float(value: onnx.TypeProto | None) -> bool:
    return value is None or not value.HasField("tensor_type") or value.tensor_type.elem_type in (0, *_FLOAT_TYPES)


def _all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in [attribute.g] * attribute.HasField("g") + list(attribute.graphs):
                yield from _all_nodes(inner)


def _last_line(error: BaseException) -> str:
    """Return the line that says what happened: TorchScript puts it last, under a traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
