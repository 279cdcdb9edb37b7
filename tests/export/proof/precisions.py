"""Model files of other precisions, made from a small model as a user's own tools would make them."""

import json
import warnings
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper
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
    _split_gemms(model.graph)
    source, target = folder / "float.onnx", folder / "int8.onnx"
    onnx.save(model, source)
    quantize_dynamic(source, target, weight_type=QuantType.QInt8, op_types_to_quantize=["MatMul"])
    return target.read_bytes()


def _split_gemms(graph: onnx.GraphProto) -> None:
    """Turn Gemm into MatMul and Add, which is what the quantiser knows."""
    weights = {tensor.name: tensor for tensor in graph.initializer}
    nodes = []
    for node in graph.node:
        if node.op_type != "Gemm":
            nodes.append(node)
            continue
        x, weight, bias = node.input
        values = numpy_helper.to_array(weights[weight])
        if any(attribute.name == "transB" and attribute.i for attribute in node.attribute):
            values = np.ascontiguousarray(values.T)
        graph.initializer.append(numpy_helper.from_array(values, f"{weight}.turned"))
        product = f"{node.output[0]}.product"
        nodes.append(helper.make_node("MatMul", [x, f"{weight}.turned"], [product], name=f"{node.name}.product"))
        nodes.append(helper.make_node("Add", [product, bias], [node.output[0]], name=f"{node.name}.sum"))
    del graph.node[:]
    graph.node.extend(nodes)
