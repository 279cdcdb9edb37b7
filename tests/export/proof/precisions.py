"""Model files of other precisions, made from a small model as a user's own tools would make them."""

import json
import warnings
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic
from torch import Tensor, nn

from export.capture import capture
from export.model import CONFIG_FILE, model_limits
from export.onnx_export import ONNX_FILE, export_onnx
from tests.export.proof.subjects import eager_model, metadata_of


class Half(nn.Module):
    """The model in half precision; logits are float32, as the contract has it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model.half()

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.model(input_ids, attention_mask).float()


def half_file(files: dict[str, bytes]) -> bytes:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own
        model = Half(eager_model(files)).eval().requires_grad_(False)
        return export_onnx(capture(model, model_limits(json.loads(files[CONFIG_FILE]))), metadata_of(files))


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
