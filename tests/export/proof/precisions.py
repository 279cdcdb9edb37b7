"""Model files of other precisions, made from a small model by Ferry and as a user's own tools would make them."""

from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

from export.half import write_half
from export.onnx_export import ONNX_FILE


def half_file(files: dict[str, bytes]) -> bytes:
    return write_half(files[ONNX_FILE])


def dynamic_int8_file(files: dict[str, bytes], folder: Path) -> bytes:
    """Quantise every Linear with scales chosen at run time."""
    model = onnx.load_from_string(files[ONNX_FILE])
    _turn_weights(model.graph)
    source, target = folder / "float.onnx", folder / "int8.onnx"
    onnx.save(model, source)
    quantize_dynamic(source, target, weight_type=QuantType.QInt8, op_types_to_quantize=["MatMul"])
    return target.read_bytes()


def _turn_weights(graph: onnx.GraphProto) -> None:
    """Store weights as the products take them: the quantiser does not look through a Transpose."""
    weights = {tensor.name: tensor for tensor in graph.initializer}
    nodes = list(graph.node)
    del graph.node[:]
    for node in nodes:
        if node.op_type == "Transpose" and node.input[0] in weights:
            values = numpy_helper.to_array(weights[node.input[0]])
            graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(values.T), node.output[0]))
        else:
            graph.node.append(node)
