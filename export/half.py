"""model_fp16.onnx: an exported model with weights and computation in half precision; ids in and float32 logits out.

Every float32 tensor and Cast becomes float16, so the file has half the size. LayerNormalization keeps its statistics in
float32, as ONNX defines it (`stash_type`). Masks are Where with zero, minus infinity or -64, which half has too; counts
of tokens are exact up to 2048.

For GPUs: ONNX Runtime's CPU has few kernels of half precision and casts about the rest. It takes 1.6 times the
processor time of float32 (6 layers of width 384 at 8×128).
bfloat16 is not written: ONNX Runtime has no kernels for it on the CPU, and what can't be run can't be verified.

The file is a pure function of the float32 file, so it is judged by writing it again.
"""

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from export.metadata_props import add_metadata
from export.node_names import all_nodes, inner_graphs, module_of

FLOAT16 = "float16"


def write_half(model: bytes) -> bytes:
    """Turn an exported float32 file into float16.

    Raises:
        ValueError: if a number is too large for half precision.
    """
    proto = onnx.load_from_string(model)
    graph = proto.graph
    for tensor in _float_tensors(graph):
        tensor.CopyFrom(_halve(tensor))
    for node in all_nodes(graph):
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.FLOAT16
    inner = [value for branch in inner_graphs(graph) for value in branch.output]
    for value in (*graph.value_info, *inner):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.FLOAT16
    _return_float32(graph)
    add_metadata(proto, {"precision": FLOAT16})
    data: bytes = proto.SerializeToString(deterministic=True)
    return data


def _float_tensors(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    constants = [part.t for node in all_nodes(graph) for part in node.attribute if part.HasField("t")]
    for tensor in (*graph.initializer, *constants):
        if tensor.data_type == TensorProto.FLOAT:
            yield tensor


def _halve(tensor: TensorProto) -> TensorProto:
    values = np.asarray(numpy_helper.to_array(tensor))
    with np.errstate(over="ignore"):
        halved = values.astype(np.float16)
    if (np.isfinite(values) & ~np.isfinite(halved)).any():
        raise ValueError(
            f"{tensor.name} holds {np.abs(values[np.isfinite(values)]).max():.6g}, which half precision can't; "
            "its largest number is 65504. Export without float16."
        )
    return numpy_helper.from_array(halved, tensor.name)


def _return_float32(graph: onnx.GraphProto) -> None:
    """Cast what the graph returns, by its old name."""
    for output in graph.output:
        inner = f"{output.name}_{FLOAT16}"
        (producer,) = (node for node in graph.node if output.name in node.output)
        for node in graph.node:
            for names in (node.input, node.output):
                names[:] = [inner if name == output.name else name for name in names]
        name = f"{module_of(producer.name)}/Cast"
        graph.node.append(helper.make_node("Cast", [inner], [output.name], name=name, to=TensorProto.FLOAT))
