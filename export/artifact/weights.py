"""Are the weights inside both model files those of model.safetensors, bit for bit?

TorchScript keeps the names of the state dict. The ONNX exporter keeps them too, except where it stores a transposed
copy under a name of its own; such a copy is found by its values. Both directions are checked: every weight must be
found and be in use, and every float tensor found must be a weight, or a table that the TorchScript file also carries.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper
from safetensors import SafetensorError
from safetensors.numpy import load

from export.model import WEIGHTS_FILE
from export.onnx_export import ONNX_FILE, read_onnx
from export.torchscript import TORCHSCRIPT_FILE, load_torchscript

Array = npt.NDArray[Any]


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
    """Yield every float tensor inside a graph that is more than one number, whatever holds it."""
    tensors = [(tensor.name, tensor) for tensor in graph.initializer]
    tensors += [
        (node.output[0], attribute.t) for node in graph.node for attribute in node.attribute if attribute.HasField("t")
    ]
    for name, tensor in tensors:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            # Reading it would open a file of the graph's choice.
            continue
        values = np.asarray(numpy_helper.to_array(tensor))
        if values.size > 1 and values.dtype.kind not in "iub":
            yield name, values
    for inner in _inner_graphs(graph):
        yield from _float_tensors(inner)


def _used_names(graph: onnx.GraphProto) -> Iterator[str]:
    for node in graph.node:
        yield from node.input
        if any(attribute.HasField("t") for attribute in node.attribute):
            yield node.output[0]
    for inner in _inner_graphs(graph):
        yield from _used_names(inner)


def _inner_graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield attribute.g
            yield from attribute.graphs
