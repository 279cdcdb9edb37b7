"""FORMS: the ways to write a quantised Linear; and the one way to write a quantised table.

- static: what a Linear takes is rounded to uint8 by a scale that calibration fixed; ONNX Runtime's own operator
  multiplies integers and adds the bias. The fastest on its CPU; no other runtime knows the operator.
- qdq: the same function in standard operators: values are rounded and turned back, and a runtime that knows integer
  products puts them there.
- dynamic: each token is rounded by a scale of its own, so nothing is calibrated and no token depends on its company.
  (DynamicQuantizeLinear has one scale for a whole tensor: padding and company would move every answer.) Standard
  operators.

Weights are int8 with a scale for each output channel, tables int8 with a scale for each row; biases, norms, attention
and pooling stay float32. Processor time on ONNX Runtime's CPU, static = 1, of 6 layers of width 384 at 8×128: qdq 1.2,
dynamic 1.6, float32 2.7.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from export.node_names import module_of
from export.quantization.linears import Linear
from export.quantization.scales import (
    SMALLEST_SCALE,
    TABLE_LEVELS,
    TOKEN_LEVELS,
    WEIGHT_LEVELS,
    Range,
    activation_scale,
    quantize_weight,
    weight_scales,
)
from export.quantization.written import Written

Array = npt.NDArray[Any]

# The domain of ONNX Runtime's own operators.
ORT_DOMAIN = "com.microsoft"
STATIC, QDQ, DYNAMIC = "static", "qdq", "dynamic"


def write_static(written: Written, linear: Linear, weight: Array, values: Range | None) -> None:
    """x -> QuantizeLinear -> MatMulIntegerToFloat, bias inside."""
    owner = module_of(linear.name)
    scale, zero_point, taken = _round_input(written, linear, values)
    levels, scales = _round_weight(written, linear, weight)
    # The empty name: weights are symmetric, without a zero point.
    inputs = [taken, levels, scale, scales, zero_point, "", *([linear.bias] if linear.bias else [])]
    written.node("MatMulIntegerToFloat", inputs, linear.output, owner=owner, domain=ORT_DOMAIN)


def write_qdq(written: Written, linear: Linear, weight: Array, values: Range | None) -> None:
    """x -> QuantizeLinear -> DequantizeLinear -> MatMul by a dequantised weight -> Add."""
    owner = module_of(linear.name)
    scale, zero_point, taken = _round_input(written, linear, values)
    x = written.node("DequantizeLinear", [taken, scale, zero_point], f"{linear.input}_dequantized", owner=owner)
    levels, scales = _round_weight(written, linear, weight)
    # Spelled out, or ONNX Runtime does not see the pattern.
    zeros = written.tensor(f"{linear.stored}_zero_point", np.zeros(len(weight), np.int8))
    turned = written.node(
        "DequantizeLinear", [levels, scales, zeros], f"{linear.stored}_dequantized", owner=owner, axis=1
    )
    _add_bias(written, linear, "MatMul", [x, turned])


def write_dynamic(written: Written, linear: Linear, weight: Array, values: Range | None) -> None:
    """x -> each token's largest size is the highest level -> MatMulInteger -> times both scales -> Add."""
    owner, x = module_of(linear.name), linear.input

    def add(operator: str, inputs: list[str], what: str, **attributes: Any) -> str:
        return written.node(operator, inputs, f"{x}_{what}", owner=owner, **attributes)

    largest = add("ReduceMax", [add("Abs", [x], "size"), written.tensor("last_axis", np.array([-1]))], "largest")
    step = add("Mul", [largest, written.tensor("token_step", np.float32(1 / TOKEN_LEVELS))], "step")
    scale = add("Max", [step, written.tensor("smallest_scale", np.float32(SMALLEST_SCALE))], "scale")
    rounded = add("Round", [add("Div", [x, scale], "ratio")], "rounded")
    # As uint8 about a zero point, for ONNX Runtime multiplies int8 by int8 on a slow path: 9 times static's time.
    middle = TOKEN_LEVELS + 1
    shifted = add("Add", [rounded, written.tensor("middle", np.float32(middle))], "shifted")
    taken = add("Cast", [shifted], "quantized", to=onnx.TensorProto.UINT8)
    levels, scales = _round_weight(written, linear, weight)
    inputs = [taken, levels, written.tensor("middle_zero_point", np.uint8(middle))]
    integers = written.node("MatMulInteger", inputs, f"{linear.output}_integers", owner=owner)
    floats = written.node("Cast", [integers], f"{linear.output}_floats", owner=owner, to=onnx.TensorProto.FLOAT)
    tokens = written.node("Mul", [floats, scale], f"{linear.output}_tokens", owner=owner)
    _add_bias(written, linear, "Mul", [tokens, scales])


def write_lookup(written: Written, lookup: onnx.NodeProto, table: Array) -> None:
    """ids -> Gather of int8 rows, and of their scales -> DequantizeLinear; table (rows, width) float32."""
    name, ids = lookup.input
    owner, output = module_of(lookup.name), lookup.output[0]
    scales = weight_scales(table, TABLE_LEVELS)
    levels = written.tensor(f"{name}_quantized", quantize_weight(table, scales, TABLE_LEVELS))
    rows = written.node("Gather", [levels, ids], f"{output}_rows", owner=owner, axis=0)
    chosen = written.node(
        "Gather", [written.tensor(f"{name}_scale", scales), ids], f"{output}_scales", owner=owner, axis=0
    )
    written.node("DequantizeLinear", [rows, chosen], output, owner=owner, axis=0)


def _round_input(written: Written, linear: Linear, values: Range | None) -> tuple[str, str, str]:
    """Write what rounds a Linear's input, and return the names of scale, zero point and what it gives."""
    assert values is not None, "a calibrated form has the range of every Linear"
    numbers = activation_scale(values)
    scale, zero_point = (
        written.tensor(f"{linear.input}_{name}", number)
        for name, number in zip(("scale", "zero_point"), numbers, strict=True)
    )
    owner, output = module_of(linear.name), f"{linear.input}_quantized"
    return scale, zero_point, written.node("QuantizeLinear", [linear.input, scale, zero_point], output, owner=owner)


def _round_weight(written: Written, linear: Linear, weight: Array) -> tuple[str, str]:
    """Store a weight (outputs, inputs) as (inputs, outputs) int8, and return its name and that of its scales."""
    scales = weight_scales(weight, WEIGHT_LEVELS)
    levels = quantize_weight(weight, scales, WEIGHT_LEVELS).T
    return written.tensor(f"{linear.stored}_quantized", levels), written.tensor(f"{linear.stored}_scale", scales)


def _add_bias(written: Written, linear: Linear, operator: str, inputs: list[str]) -> None:
    """Write a Linear's last operator, and its bias if it has one."""
    owner = module_of(linear.name)
    if linear.bias is None:
        written.node(operator, inputs, linear.output, owner=owner)
    else:
        product = written.node(operator, inputs, linear.product.output[0], owner=owner)
        written.node("Add", [product, linear.bias], linear.output, owner=owner)


@dataclass(frozen=True, kw_only=True)
class Form:
    """One row: how a Linear is written, whether calibration fixes scales, and which operators beside ONNX's it takes.

    `operator` is what ONNX Runtime's CPU has for each Linear once it has optimised the graph.
    """

    write: Callable[[Written, Linear, Array, Range | None], None]
    calibrated: bool
    operator: str
    domains: tuple[str, ...] = ()


FORMS: dict[str, Form] = {
    STATIC: Form(write=write_static, calibrated=True, operator="MatMulIntegerToFloat", domains=(ORT_DOMAIN,)),
    QDQ: Form(write=write_qdq, calibrated=True, operator="MatMulIntegerToFloat"),
    DYNAMIC: Form(write=write_dynamic, calibrated=False, operator="MatMulInteger"),
}
