"""The strongest check of structure: is a file's graph that of a fresh export of the same configuration?

A model of the configuration with other weights is exported here and now, and both graphs are compared up to names,
order and the values of weights: every operator, attribute, constant, connection, and which weight is used where. What
differs in nothing of this computes the same function. Each value gets a digest of the whole computation that leads to
it, so equal digests of all operations mean equal graphs.

Exporters of other releases may write other graphs, and then nothing follows from a difference: that is said, not
judged. The other checks stand without this one.
"""

import hashlib
import json
import logging
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import onnx
import onnxscript
import torch

from export import __version__
from export.contract import canonical_json
from export.model import build_model, model_labels, model_limits
from export.onnx_export import ONNX_FILE, export_onnx, read_onnx, shape_of
from export.proof.checks.files import Files, NotJudgedError
from export.proof.checks.onnx_graph import OnnxGraph, attributes_of
from export.proof.checks.script_graph import COMPUTED, ScriptGraph, arguments_of, plain_type
from export.proof.runtimes import Array
from export.pt2 import PT2_FILE, export_pt2
from export.pt2_guard import PT2_DOCUMENTS, read_documents
from export.torchscript import TORCHSCRIPT_FILE, export_torchscript, load_torchscript


@dataclass(frozen=True)
class Fresh:
    """A fresh export: the bytes of the files, and the weights that went into them."""

    onnx: bytes
    torchscript: bytes
    pt2: bytes
    weights: Mapping[str, Array]

    @cached_property
    def script_operations(self) -> list["Operation"]:
        return list(_script_operations(ScriptGraph(load_torchscript(self.torchscript)[0])))


@dataclass(frozen=True)
class Operation:
    """One operation of a graph: a digest of it and all that it follows from, and how a person would call it."""

    digest: str
    told: str


Label = Callable[[Array], str]


def fresh_export(files: Files) -> Fresh:
    """Export a model of a configuration anew; what does not shape the graphs is left out, so one export serves many."""
    # Before anything is built, this refuses a configuration that the weights do not fit.
    _ = files.eager
    config = files.config
    shaping = {key: config[key] for key in ("architectures", "task", "pooling", "head", "encoder")}
    labels = [str(number) for number in range(len(model_labels(config)))]
    return _fresh_export(canonical_json({**shaping, "id2label": dict(zip(labels, labels, strict=True))}))


@lru_cache(maxsize=8)
def _fresh_export(description: str) -> Fresh:
    config = json.loads(description)
    with torch.random.fork_rng(devices=[]), _quiet():
        model = build_model(config).eval().requires_grad_(False)
        generator = torch.Generator().manual_seed(0)
        for parameter in model.parameters():
            # All different, or the exporter would store equal ones once.
            parameter.copy_(torch.rand(parameter.shape, generator=generator))
        weights = {name: weight.numpy() for name, weight in model.state_dict().items()}
        limits = model_limits(config)
        return Fresh(
            onnx=export_onnx(model, {}, limits),
            torchscript=export_torchscript(model, {}),
            pt2=export_pt2(model, {}, limits),
            weights=weights,
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporter's remarks to itself: they were made when the files were exported."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def check_onnx_graph(files: Files) -> list[str]:
    fresh = fresh_export(files)
    # One name for weights of equal values: which of them stands where makes no difference.
    same = _namesakes(files.weights)
    got = _Onnx(files.graph, _labels(files.weights, same))
    wanted = _Onnx(OnnxGraph(read_onnx(fresh.onnx)), _labels(fresh.weights, same))
    return judge(files, ONNX_FILE, [*_compare(ONNX_FILE, got.operations, wanted.operations), *got.differences(wanted)])


def check_script_graph(files: Files) -> list[str]:
    fresh = fresh_export(files)
    got = list(_script_operations(files.script))
    return judge(files, TORCHSCRIPT_FILE, _compare(TORCHSCRIPT_FILE, got, fresh.script_operations))


def check_pt2_graph(files: Files) -> list[str]:
    """Compare what is no number in the archive, to the letter: its names and its order depend on nothing else."""
    fresh = fresh_export(files)
    problems = []
    for name, got, wanted in zip(
        PT2_DOCUMENTS, read_documents(files.read(PT2_FILE)), read_documents(fresh.pt2), strict=True
    ):
        where = _first_difference(got, wanted)
        if where is not None:
            problems.append(f"{PT2_FILE}, {name} differs from that of a fresh export at {where}")
    return judge(files, PT2_FILE, problems)


def _first_difference(got: object, wanted: object, path: str = "") -> str | None:
    """Return the place of the first difference of two JSON documents; None if there is none."""
    if isinstance(got, dict) and isinstance(wanted, dict) and got.keys() == wanted.keys():
        parts = [(f"{path}.{key}".removeprefix("."), got[key], wanted[key]) for key in wanted]
    elif isinstance(got, list) and isinstance(wanted, list) and len(got) == len(wanted):
        parts = [(f"{path}[{place}]", one, other) for place, (one, other) in enumerate(zip(got, wanted, strict=True))]
    else:
        return None if type(got) is type(wanted) and got == wanted else path or "its root"
    places = (_first_difference(one, other, where) for where, one, other in parts)
    return next((place for place in places if place is not None), None)


def judge(files: Files, file: str, problems: list[str]) -> list[str]:
    """Return the problems, unless other releases than those installed wrote the file."""
    installed = {
        "ferry": __version__,
        "onnx": onnx.__version__,
        "onnxscript": onnxscript.__version__,
        "torch": torch.__version__.partition("+")[0],
    }
    told = files.onnx_metadata["versions"]
    others = [f"{name} {told[name]}, not {here}" for name, here in installed.items() if told.get(name, here) != here]
    if problems and others:
        raise NotJudgedError(f"{file} was written by {', '.join(others)}: a fresh export proves nothing here")
    return problems


def _compare(file: str, got: list[Operation], wanted: list[Operation]) -> list[str]:
    """Name the first operation that differs; those after it differ because of it."""
    extra = Counter(operation.digest for operation in got)
    extra.subtract(operation.digest for operation in wanted)
    odd = next((operation for operation in got if extra[operation.digest] > 0), None)
    missing = next((operation for operation in wanted if extra[operation.digest] < 0), None)
    if odd is None and missing is None:
        return []
    found = f"has {odd.told}" if odd else f"lacks {missing.told}" if missing else ""
    told = (
        f", where a fresh export has {missing.told}" if odd and missing else "; a fresh export has none" if odd else ""
    )
    return [f"{file} {found}{told} ({len(got)} operations, {len(wanted)} in a fresh export)"]


def _namesakes(weights: Mapping[str, Array]) -> dict[str, str]:
    first: dict[str, str] = {}
    return {name: first.setdefault(_content(values), name) for name, values in sorted(weights.items())}


def _labels(weights: Mapping[str, Array], same: Mapping[str, str]) -> Label:
    """Return what calls an array by the weight that it is, or is the transpose of, and else by its own values."""
    known = {_content(values): same.get(name, name) for name, values in sorted(weights.items(), reverse=True)}

    def label(values: Array) -> str:
        if values.ndim > 0 and values.dtype.kind == "f":
            name = known.get(_content(values))
            if name is not None:
                return name
            name = known.get(_content(values.T)) if values.ndim == 2 else None
            if name is not None:
                return f"transposed {name}"
        if values.size <= 4:
            return f"{values.tolist()!r} {values.dtype}"
        return f"{values.dtype}{list(values.shape)} {_content(values)[:12]}"

    return label


def _content(values: Array) -> str:
    return _digest(str(values.dtype), values.shape, hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest())


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


class _Onnx:
    """The operations of an ONNX graph, what it says of each value, and what it stores and returns."""

    def __init__(self, graph: OnnxGraph, label: Label) -> None:
        stored = {name: label(values) for name, values in graph.arrays.items()}
        inputs = {value.name: f"input {value.name}" for value in graph.model.graph.input}
        values = {"": "nothing", **inputs, **stored}
        self.operations: list[Operation] = []
        for node in graph.nodes:
            attributes, taken = _oriented(node, [values.get(name, "an unknown value") for name in node.input])
            digest = _digest(node.domain, node.op_type, sorted(attributes.items()), taken, len(node.output))
            self.operations.append(
                Operation(digest, _told(node, attributes, [stored.get(name) for name in node.input]))
            )
            values.update((name, f"{digest} {place}") for place, name in enumerate(node.output))
        self.stored = set(stored.values())
        self.returned = [values.get(value.name, "an unknown value") for value in graph.model.graph.output]
        self.types = {
            values.get(value.name, "an unknown value"): (value.type.tensor_type.elem_type, shape_of(value))
            for value in graph.model.graph.value_info
        }

    def differences(self, wanted: "_Onnx") -> list[str]:
        """Name what differs beside the operations."""
        problems = [f"{ONNX_FILE} stores {told}, which a fresh export does not" for told in self._stored_more(wanted)]
        same = {operation.digest for operation in self.operations} == {part.digest for part in wanted.operations}
        if same and self.returned != wanted.returned:
            problems.append(f"{ONNX_FILE} returns another value than a fresh export")
        problems += [
            f"{ONNX_FILE} says of a value that it is {told}; a fresh export says {wanted.types[value]}"
            for value, told in self.types.items()
            if value in wanted.types and told != wanted.types[value]
        ]
        return problems

    def _stored_more(self, wanted: "_Onnx") -> list[str]:
        upright = {told.removeprefix("transposed ") for told in wanted.stored}
        return sorted(told for told in self.stored if told.removeprefix("transposed ") not in upright)


def _oriented(node: onnx.NodeProto, taken: list[str]) -> tuple[dict[str, Any], list[str]]:
    """Bring a product with a stored transpose to one form: a copy of Wᵀ taken as it is, is W taken transposed."""
    attributes = attributes_of(node)
    if node.op_type == "Gemm" and len(taken) > 1 and taken[1].startswith("transposed "):
        attributes = {**attributes, "transB": 1 - attributes.get("transB", 0)}
        taken = [taken[0], taken[1].removeprefix("transposed "), *taken[2:]]
    return {name: _plain(value) for name, value in attributes.items()}, taken


def _plain(value: Any) -> object:
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value).tolist(), value.data_type
    return value if isinstance(value, (int, float, str, list)) else str(value)


def _told(node: onnx.NodeProto, attributes: Mapping[str, object], stored: list[str | None]) -> str:
    taken = ", ".join(name or "…" for name in stored)
    told = ", ".join(f"{name}={value}" for name, value in sorted(attributes.items()))
    return f"{node.op_type}({taken}){f' with {told}' if told else ''}"


def _shown(script: ScriptGraph, node: Any) -> Iterator[str]:
    names = list(arguments_of(node))
    for place, value in enumerate(node.inputs()):
        constant = script.constant(value)
        if constant is COMPUTED:
            yield script.path(value) or value.debugName().partition(".")[0]
        else:
            yield f"{names[place]}={constant!r}" if place < len(names) else repr(constant)


def _script_operations(script: ScriptGraph) -> Iterator[Operation]:
    """Yield the operations of `forward` as it stands in the file, in program order."""
    values: dict[int, str] = {}

    def of(value: Any) -> str:
        node = value.node()
        if node.kind() == "prim::Constant":
            return f"constant {plain_type(value)} {node.output().toIValue()!r}"
        path = script.path(value)
        if path is None:
            return values.get(value.unique(), "an unknown value")
        held = script.constant(value)
        return f"{plain_type(value)} {path}" if held is COMPUTED else f"{path} = {held!r}"

    def follow(block: Any, place: str) -> Iterator[Operation]:
        for number, value in enumerate(block.inputs()):
            values[value.unique()] = f"parameter {number} of {place}"
        for node in block.nodes():
            if node.kind() in ("prim::Constant", "prim::GetAttr"):
                continue
            taken = [of(value) for value in node.inputs()]
            inner: list[object] = []
            for number, part in enumerate(node.blocks()):
                operations = list(follow(part, f"{place}.{number}"))
                yield from operations
                inner.append(([operation.digest for operation in operations], [of(value) for value in part.outputs()]))
            kept = {name: str(node[name]) for name in node.attributeNames()}
            types = [plain_type(value) for value in node.outputs()]
            digest = _digest(node.kind(), kept, taken, inner, types)
            values.update((value.unique(), f"{digest} {number}") for number, value in enumerate(node.outputs()))
            yield Operation(digest, f"{node.kind()}({', '.join(_shown(script, node))})")

    yield from follow(script.whole, "forward")
    returned = [of(value) for value in script.whole.outputs()]
    yield Operation(_digest(returned), "what forward returns")
