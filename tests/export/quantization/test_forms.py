"""A quantised Linear, alone in a graph, against loops over integers; and a quantised table against its rows."""

from fractions import Fraction

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from export.quantization.forms import FORMS
from export.quantization.scales import Range
from export.quantization.write import write_quantized

X = np.array([[[0.3, -1.2, 2.0], [0.0, 0.0, 0.0], [5.0, -5.0, 0.01], [1e-30, -1e-30, 0.0]]], np.float32)
WEIGHT = np.array([[1.0, -2.0, 0.5], [0.0, 0.0, 0.0], [1e-3, 5e-4, -2e-3], [100.0, 3.0, -50.0]], np.float32)
BIAS = np.array([0.5, -1.0, 0.0, 7.0], np.float32)
# Narrower than what comes, wider, and of one sign.
RANGES = {"as-calibrated": Range(-5.0, 5.0), "narrow": Range(-1.0, 1.0), "wide": Range(-80.0, 40.0), "up": Range(0, 9)}


def linear_graph(weight: np.ndarray, bias: np.ndarray | None) -> bytes:
    nodes = [
        helper.make_node("Transpose", ["up.weight"], ["turned"], name="up/Transpose", perm=[1, 0]),
        helper.make_node("MatMul", ["x", "turned"], ["product" if bias is not None else "y"], name="up/MatMul"),
    ]
    tensors = [numpy_helper.from_array(weight, "up.weight")]
    if bias is not None:
        nodes.append(helper.make_node("Add", ["product", "up.bias"], ["y"], name="up/Add"))
        tensors.append(numpy_helper.from_array(bias, "up.bias"))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, "tokens", weight.shape[1]])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, "tokens", weight.shape[0]])
    return as_model(helper.make_graph(nodes, "linear", [x], [y], tensors))


def as_model(graph: onnx.GraphProto) -> bytes:
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    return model.SerializeToString()


def run(model: bytes, **feed: np.ndarray) -> np.ndarray:
    onnx.checker.check_model(onnx.load_from_string(model), full_check=True)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    (answer,) = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"]).run(None, feed)
    return answer


def nearest(value: float, scale: float) -> int:
    return round(Fraction(float(value)) / Fraction(float(scale)))


def calibrated_oracle(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None, values: Range) -> np.ndarray:
    """Round every number by itself, and sum integers."""
    low, high = min(values.low, 0.0), max(values.high, 0.0)
    scale = float(np.float32((high - low) / 255))
    zero_point = nearest(-low, scale)
    answer = np.zeros((len(x), len(weight)))
    for token in range(len(x)):
        levels = [min(255, max(0, nearest(value, scale) + zero_point)) for value in x[token]]
        for channel, row in enumerate(weight):
            step = float(np.float32(max(abs(float(value)) for value in row) / 64)) or 1.0
            total = sum((level - zero_point) * nearest(value, step) for level, value in zip(levels, row, strict=True))
            answer[token, channel] = total * scale * step + (0.0 if bias is None else float(bias[channel]))
    return answer


def dynamic_oracle(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    answer = np.zeros((len(x), len(weight)))
    for token in range(len(x)):
        scale = max(max(abs(float(value)) for value in x[token]) / 127, float(np.finfo(np.float32).tiny))
        levels = [nearest(value, scale) for value in x[token]]
        for channel, row in enumerate(weight):
            step = max(abs(float(value)) for value in row) / 64 or 1.0
            total = sum(level * nearest(value, step) for level, value in zip(levels, row, strict=True))
            answer[token, channel] = total * scale * step + (0.0 if bias is None else float(bias[channel]))
    return answer


@pytest.mark.parametrize("bias", [BIAS, None], ids=["bias", "no-bias"])
@pytest.mark.parametrize("values", RANGES.values(), ids=RANGES)
@pytest.mark.parametrize("form", ["static", "qdq"])
def test_a_calibrated_linear_is_a_sum_of_integers(form: str, values: Range, bias: np.ndarray | None) -> None:
    quantized = write_quantized(linear_graph(WEIGHT, bias), form, {"up/MatMul": values}, {})
    got = run(quantized, x=X)[0]
    # The sums are exact; what is left are the roundings of two scales and a bias.
    np.testing.assert_allclose(got, calibrated_oracle(X[0], WEIGHT, bias, values), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("bias", [BIAS, None], ids=["bias", "no-bias"])
def test_a_dynamic_linear_rounds_each_token_by_its_own_scale(bias: np.ndarray | None) -> None:
    got = run(write_quantized(linear_graph(WEIGHT, bias), "dynamic", {}, {}), x=X)[0]
    np.testing.assert_allclose(got, dynamic_oracle(X[0], WEIGHT, bias), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", [0.0, 1e-45, 1e-38, 1e30], ids=["zeros", "denormal", "tiny", "huge"])
def test_constant_and_hostile_values_give_finite_right_answers(form: str, size: float) -> None:
    x = np.full((1, 2, 3), size, np.float32)
    ranges = {"up/MatMul": Range(0.0, float(x.max()))} if FORMS[form].calibrated else {}
    got = run(write_quantized(linear_graph(WEIGHT, BIAS), form, ranges, {}), x=x)
    wanted = x.astype(np.float64) @ WEIGHT.T.astype(np.float64) + BIAS
    # Each weight is within half a level, of 64 to the largest of its channel.
    reach = 0.51 / 64 * np.abs(WEIGHT).max(axis=1) * 3 * size + 1e-30
    assert np.isfinite(got).all()
    assert (np.abs(got - wanted) <= reach + 1e-6 * np.abs(wanted)).all()


def test_products_do_not_saturate_at_the_largest_levels() -> None:
    weight, x = np.ones((4, 64), np.float32), np.ones((1, 3, 64), np.float32)
    got = run(write_quantized(linear_graph(weight, None), "static", {"up/MatMul": Range(0.0, 1.0)}, {}), x=x)
    np.testing.assert_allclose(got, np.full((1, 3, 4), 64.0), rtol=1e-6)


def test_a_table_is_rounded_row_by_row() -> None:
    table = np.array([[1.0, -0.5, 0.3], [0.0, 0.0, 0.0], [1e-3, 2e-3, -1e-3], [80.0, -1.0, 0.2]], np.float32)
    gather = helper.make_node("Gather", ["table.weight", "ids"], ["y"], name="table/Gather")
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, ["tokens"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["tokens", 3])
    model = as_model(
        helper.make_graph([gather], "lookup", [ids], [y], [numpy_helper.from_array(table, "table.weight")])
    )
    asked = np.array([3, 1, 0, 2, 2], np.int64)
    got = run(write_quantized(model, "qdq", {}, {}), ids=asked)
    for answer, row in zip(got, table[asked], strict=True):
        step = float(np.float32(max(abs(float(value)) for value in row) / 127)) or 1.0
        np.testing.assert_allclose(answer, [nearest(value, step) * step for value in row], rtol=1e-6, atol=0)


def test_linears_that_take_one_value_round_it_once() -> None:
    nodes = []
    for name in ("q", "k"):
        nodes += [
            helper.make_node("Transpose", [f"{name}.weight"], [f"{name}.turned"], name=f"{name}/T", perm=[1, 0]),
            helper.make_node("MatMul", ["x", f"{name}.turned"], [f"{name}.product"], name=f"{name}/MatMul"),
        ]
    nodes.append(helper.make_node("Add", ["q.product", "k.product"], ["y"], name="Add"))
    tensors = [numpy_helper.from_array(WEIGHT * factor, f"{name}.weight") for name, factor in (("q", 1), ("k", 2))]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, "tokens", None]) for name in "xy")
    values = Range(-5.0, 5.0)
    model = as_model(helper.make_graph(nodes, "two", [x], [y], tensors))
    quantized = write_quantized(model, "static", {"q/MatMul": values, "k/MatMul": values}, {})
    assert [node.op_type for node in onnx.load_from_string(quantized).graph.node].count("QuantizeLinear") == 1
    wanted = calibrated_oracle(X[0], WEIGHT, None, values) * 3
    np.testing.assert_allclose(run(quantized, x=X)[0], wanted, rtol=1e-6, atol=1e-6)
