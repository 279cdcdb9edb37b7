"""The graph of model.onnx, operation by operation and name by name, against that of a fresh export."""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx

from export.onnx_export import ONNX_FILE, read_onnx, shape_of
from export.proof.checks.files import Files
from export.proof.checks.fresh_export import Operation, compare, digest_of, fresh_export, judge
from export.proof.checks.onnx_graph import OnnxGraph, attributes_of
from export.proof.runtimes import Array

# What the exporter calls an array that it made of a weight.
_NUMBERED = re.compile(r"val_\d{1,6}")

Label = Callable[[Array], str]


def check_onnx_graph(files: Files) -> list[str]:
    fresh = fresh_export(files)
    # One name for weights of equal values: which of them stands where makes no difference.
    same = _namesakes(files.weights)
    got = _Onnx(files.graph, _labels(files.weights, same))
    wanted = _Onnx(OnnxGraph(read_onnx(fresh.onnx)), _labels(fresh.weights, same))
    return judge(files, ONNX_FILE, [*compare(ONNX_FILE, got.operations, wanted.operations), *got.differences(wanted)])


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
    return digest_of(
        str(values.dtype), values.shape, hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()
    )


class _Onnx:
    """The operations of an ONNX graph, what it says of each value, and what it stores and returns."""

    def __init__(self, graph: OnnxGraph, label: Label) -> None:
        stored = {name: label(values) for name, values in graph.arrays.items()}
        inputs = {value.name: f"input {value.name}" for value in graph.model.graph.input}
        values = {"": "nothing", **inputs, **stored}
        self.operations: list[Operation] = []
        # What stands for nothing in a computation may still be read.
        self.names: Counter[tuple[str, ...]] = Counter()
        for node in graph.nodes:
            attributes = {name: _plain(value) for name, value in attributes_of(node).items()}
            taken = [values.get(name, "an unknown value") for name in node.input]
            digest = digest_of(node.domain, node.op_type, sorted(attributes.items()), taken, len(node.output))
            self.operations.append(
                Operation(digest, _told(node, attributes, [stored.get(name) for name in node.input]))
            )
            values.update((name, f"{digest} {place}") for place, name in enumerate(node.output))
            self.names[digest, node.name, *node.output] += 1
        self.stored = set(stored.values())
        self.arrays = set(stored)
        self.told_of = Counter(value.name for value in graph.model.graph.value_info)
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
        stored = [name for name in sorted(self.arrays - wanted.arrays) if not _NUMBERED.fullmatch(name)]
        others = [*(self.told_of - wanted.told_of), *stored]
        if same:
            others += [" ".join(names) for _, *names in self.names - wanted.names]
        if others:
            problems.append(f"{ONNX_FILE} holds the name {others[0]!a}, which a fresh export does not give there")
        problems += [
            f"{ONNX_FILE} says of a value that it is {told}; a fresh export says {wanted.types[value]}"
            for value, told in self.types.items()
            if value in wanted.types and told != wanted.types[value]
        ]
        return problems

    def _stored_more(self, wanted: "_Onnx") -> list[str]:
        upright = {told.removeprefix("transposed ") for told in wanted.stored}
        return sorted(told for told in self.stored if told.removeprefix("transposed ") not in upright)


def _plain(value: Any) -> object:
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value).tolist(), value.data_type
    return value if isinstance(value, (int, float, str, list)) else str(value)


def _told(node: onnx.NodeProto, attributes: Mapping[str, object], stored: list[str | None]) -> str:
    taken = ", ".join(name or "…" for name in stored)
    told = ", ".join(f"{name}={value}" for name, value in sorted(attributes.items()))
    return f"{node.op_type}({taken}){f' with {told}' if told else ''}"
