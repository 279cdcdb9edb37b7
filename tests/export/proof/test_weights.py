"""Weights are compared bit for bit, in both directions, and nothing outside the bytes is read."""

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import save
from torch import Tensor, nn

from export.proof.checks.weights import compare_weights
from export.torchscript import export_torchscript

VALUES = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], np.float32)


class Tied(nn.Module):
    """One weight under two names, and a table that training does not change."""

    table: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 2, bias=False)
        self.first.weight = nn.Parameter(torch.tensor(VALUES))
        self.second = nn.Linear(3, 2, bias=False)
        self.second.weight = self.first.weight
        self.register_buffer("table", torch.arange(4.0), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.first(x) + self.second(x) + self.table.sum()


def make_onnx(**initializers: np.ndarray) -> bytes:
    nodes = [helper.make_node("Identity", [name], [f"use_{name}"]) for name in initializers]
    tensors = [numpy_helper.from_array(values, name) for name, values in initializers.items()]
    return helper.make_model(helper.make_graph(nodes, "g", [], [], tensors)).SerializeToString()


def compare(*, weights: dict[str, np.ndarray] | None = None, **initializers: np.ndarray) -> list[str]:
    torchscript = export_torchscript(Tied().eval(), {})
    return compare_weights(save(weights or {"first.weight": VALUES}), torchscript, make_onnx(**initializers))


def test_a_tied_weight_stands_once_and_may_be_a_transposed_copy() -> None:
    assert compare(first=VALUES) == []
    assert compare(**{"first.weight": VALUES}) == []
    assert compare(weights={"second.weight": VALUES}, first=VALUES) == []
    assert compare(val_3=np.ascontiguousarray(VALUES.T)) == []
    assert compare(val_3=VALUES, val_4=np.arange(4, dtype=np.float32)) == []


def test_another_value_under_the_right_name_is_found_though_the_true_one_is_there() -> None:
    assert compare(**{"first.weight": VALUES + 1, "val_3": VALUES}) == [
        "model.onnx has other values for the weight first.weight",
        "model.onnx holds the tensor val_3, which is no weight of model.safetensors",
    ]


def test_a_tensor_that_is_no_weight_is_found() -> None:
    problems = compare(val_3=VALUES, val_4=VALUES * 2)
    assert problems == ["model.onnx holds the tensor val_4, which is no weight of model.safetensors"]


def test_negative_zero_is_not_zero() -> None:
    weights = {"first.weight": np.where(VALUES == 1, np.float32(-0.0), VALUES)}
    problems = compare(weights=weights, val_3=np.where(VALUES == 1, np.float32(0.0), VALUES))
    assert problems[0] == "model.pt has other values for the weight first.weight"
    assert "model.onnx lacks the weight first.weight, or no node uses it" in problems


def test_a_weight_that_no_node_uses_counts_as_absent() -> None:
    model = onnx.load_from_string(make_onnx(val_3=VALUES))
    del model.graph.node[:]
    problems = compare_weights(
        save({"first.weight": VALUES}), export_torchscript(Tied().eval(), {}), model.SerializeToString()
    )
    assert problems == ["model.onnx lacks the weight first.weight, or no node uses it"]


def test_a_missing_and_an_unknown_weight_of_the_script_are_found() -> None:
    problems = compare(weights={"third.weight": VALUES + 1}, val_3=VALUES + 1)
    assert problems == [
        "model.pt lacks the weight third.weight",
        "model.pt holds the weight first.weight, which model.safetensors lacks",
        "model.pt holds the weight second.weight, which model.safetensors lacks",
    ]


def test_external_data_is_never_read() -> None:
    model = onnx.load_from_string(make_onnx(val_3=VALUES))
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../../etc/hostname")
    problems = compare_weights(
        save({"first.weight": VALUES}), export_torchscript(Tied().eval(), {}), model.SerializeToString()
    )
    assert problems == ["model.onnx lacks the weight first.weight, or no node uses it"]
