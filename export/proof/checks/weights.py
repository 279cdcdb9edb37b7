"""Are the weights inside both model files those of model.safetensors, bit for bit?

TorchScript keeps the names of the state dict. The ONNX exporter keeps them too, except where it stores a transposed
copy under a name of its own; such a copy is found by its values. Both directions are checked: every weight must be
found and be in use, and every float tensor found must be a weight, or a table that the TorchScript file also carries.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper
from safetensors import SafetensorError
from safetensors.numpy import load

from export.model import WEIGHTS_FILE
from export.node_names import graphs_of
from export.onnx_export import ONNX_FILE, read_onnx
from export.proof.checks.files import Files
from export.torchscript import TORCHSCRIPT_FILE, load_torchscript

Array = npt.NDArray[Any]


def check_weights(files: Files) -> list[str]:
    return compare_weights(files.read(WEIGHTS_FILE), files.read(TORCHSCRIPT_FILE), files.read(ONNX_FILE))


def check_tables(files: Files) -> list[str]:
    """Compare what is stored beside the weights, such as position tables, with what config.json leads to."""
    wanted = files.tables
    got = {name: buffer.numpy() for name, buffer in files.torchscript.named_buffers()}
    problems = [f"{TORCHSCRIPT_FILE} lacks the table {name}" for name in sorted(wanted.keys() - got.keys())]
    problems += [f"{TORCHSCRIPT_FILE} holds the unknown table {name}" for name in sorted(got.keys() - wanted.keys())]
    problems += [
        f"{TORCHSCRIPT_FILE} has other values in the table {name}"
        for name in sorted(wanted.keys() & got.keys())
        if not same_bits(got[name], wanted[name])
    ]
    used = set(_used_names(files.onnx.graph))
    stored = [values for name, values in _float_tensors(files.onnx.graph) if name in used]
    return problems + [
        f"{ONNX_FILE} lacks the table {name}, or no node uses it"
        for name, table in sorted(wanted.items())
        if not any(_same_or_transposed(values, table) for values in stored)
    ]


def check_stored_once(files: Files) -> list[str]:
    """Count how often the same values are stored: a tied weight stands once, as in model.safetensors."""
    owned = [*files.weights.values(), *files.tables.values()]
    problems = []
    known = Counter(values.tobytes() for values in owned)
    oriented = Counter(_upright(values) for values in owned)
    copies = [(name, values) for name, values in _float_tensors(files.onnx.graph)]
    for name, times, allowed in repeated([(name, _upright(values)) for name, values in copies], oriented):
        problems.append(f"{ONNX_FILE} stores the values of {name} {times} times; {WEIGHTS_FILE} has them {allowed}")
    records = [(name, data) for name, data in files.archive if name.startswith("data/")]
    for name, times, allowed in repeated(records, known):
        problems.append(f"{TORCHSCRIPT_FILE} stores the record {name} {times} times; {WEIGHTS_FILE} has it {allowed}")
    return problems + [
        f"{TORCHSCRIPT_FILE} stores the record {name}, which is no weight and no table"
        for name, data in records
        if data not in known
    ]


def _upright(values: Array) -> bytes:
    """One form for a matrix and its transpose."""
    flipped = np.ascontiguousarray(values.T) if values.ndim == 2 else values
    return min(repr(form.shape).encode() + form.tobytes() for form in (values, flipped))


def repeated(stored: list[tuple[str, bytes]], owned: Counter[bytes]) -> Iterator[tuple[str, int, int]]:
    """Yield what is stored more often than it is owned: its first name, how often, how often it may be."""
    counts = Counter(content for _, content in stored)
    names = {content: name for name, content in reversed(stored)}
    for content, times in counts.items():
        allowed = max(1, owned[content])
        if times > allowed:
            yield names[content], times, allowed


def compare_weights(safetensors: bytes, torchscript: bytes, onnx_model: bytes) -> list[str]:
    """Compare the weights of both model files with model.safetensors and return what differs.

    Args:
        safetensors: the bytes of model.safetensors.
        torchscript: the bytes of model.pt.
        onnx_model: the bytes of model.onnx.

    Raises:
        ValueError: if one of the three can't be read.
    """
    try:
        weights = load(safetensors)
    except SafetensorError as error:
        raise ValueError(f"{WEIGHTS_FILE} is damaged: {error}.") from None
    module, _ = load_torchscript(torchscript)
    parameters = {name: value.detach().numpy() for name, value in module.named_parameters(remove_duplicate=False)}
    tables = {name: value.numpy() for name, value in module.named_buffers()}
    return [
        *_compare_torchscript(weights, parameters, tables),
        *_compare_onnx(weights, tables, read_onnx(onnx_model).graph),
    ]


def _compare_torchscript(
    weights: Mapping[str, Array], parameters: Mapping[str, Array], tables: Mapping[str, Array]
) -> list[str]:
    problems = []
    found = {**tables, **parameters}
    for name, weight in weights.items():
        if name not in found:
            problems.append(f"{TORCHSCRIPT_FILE} lacks the weight {name}")
        elif not same_bits(found[name], weight):
            problems.append(f"{TORCHSCRIPT_FILE} has other values for the weight {name}")
    for name in sorted(parameters.keys() - weights.keys()):
        # A tied weight stands once in the safetensors file and under each of its names here.
        if not any(same_bits(parameters[name], weight) for weight in weights.values()):
            problems.append(f"{TORCHSCRIPT_FILE} holds the weight {name}, which {WEIGHTS_FILE} lacks")
    return problems


def _compare_onnx(weights: Mapping[str, Array], tables: Mapping[str, Array], graph: onnx.GraphProto) -> list[str]:
    problems = []
    used = set(_used_names(graph))
    stored = {name: values for name, values in _float_tensors(graph) if name in used}
    explained = set()
    for name, weight in weights.items():
        if name in stored:
            explained.add(name)
            if not _same_or_transposed(stored[name], weight):
                problems.append(f"{ONNX_FILE} has other values for the weight {name}")
            continue
        copies = {other for other, values in stored.items() if _same_or_transposed(values, weight)}
        explained |= copies
        if not copies:
            problems.append(f"{ONNX_FILE} lacks the weight {name}, or no node uses it")
    for name in sorted(stored.keys() - explained):
        if not any(_same_or_transposed(stored[name], table) for table in tables.values()):
            problems.append(f"{ONNX_FILE} holds the tensor {name}, which is no weight of {WEIGHTS_FILE}")
    return problems


def same_bits(left: Array, right: Array) -> bool:
    """Whether two arrays have one type, one shape and the same bytes: −0 is not 0, and NaN may equal itself."""
    return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()


def _same_or_transposed(left: Array, right: Array) -> bool:
    return same_bits(left, right) or (left.ndim == 2 and same_bits(left.T, right))


def _float_tensors(graph: onnx.GraphProto) -> Iterator[tuple[str, Array]]:
    """Yield every float tensor inside a graph that is no bare number, whatever holds it."""
    tensors = [(tensor.name, tensor) for tensor in graph.initializer]
    tensors += [
        (node.output[0], attribute.t) for node in graph.node for attribute in node.attribute if attribute.HasField("t")
    ]
    for name, tensor in tensors:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            # Reading it would open a file of the graph's choice.
            continue
        values = np.asarray(numpy_helper.to_array(tensor))
        if values.ndim > 0 and values.dtype.kind not in "iub":
            yield name, values
    for node in graph.node:
        for inner in graphs_of(node):
            yield from _float_tensors(inner)


def _used_names(graph: onnx.GraphProto) -> Iterator[str]:
    for node in graph.node:
        yield from node.input
        if any(attribute.HasField("t") for attribute in node.attribute):
            yield node.output[0]
        for inner in graphs_of(node):
            yield from _used_names(inner)
