"""Linears on (1, N, C): MatMul and Add, which ONNX Runtime's CPU runs faster than Gemm.

It makes a Gemm of MatMul and Add in two dimensions when it loads a file; a leading axis of one element keeps them
apart, and lets Add join GELU. The weight stays as PyTorch has it, and ONNX Runtime turns it once, at load.
"""

from typing import Any

import onnx_ir as ir
from onnxscript.rewriter import RewriteRule


def _linear(op: Any, x: ir.Value, weight: ir.Value, bias: ir.Value) -> Any:
    return op.Gemm(x, weight, bias, alpha=1.0, beta=1.0, transA=0, transB=1)


def _turned(op: Any, x: ir.Value, weight: ir.Value, bias: ir.Value) -> Any:
    return product_and_sum(op, x, op.Transpose(weight, perm=[1, 0]), bias)


def product_and_sum(op: Any, x: ir.Value, turned: ir.Value, bias: ir.Value) -> Any:
    """x (N, C) by a turned weight (C, F), and a bias (F,) added: (N, F)."""
    product = op.MatMul(op.Unsqueeze(x, _first_axis(op)), turned)
    return op.Squeeze(op.Add(product, bias), _first_axis(op))


def _gelu_outside(op: Any, x: ir.Value, axes: ir.Value) -> Any:
    return op.Gelu(op.Squeeze(x, axes), approximate="none")


def _gelu_inside(op: Any, x: ir.Value, axes: ir.Value) -> Any:
    return op.Squeeze(op.Gelu(x, approximate="none"), axes)


def _out_and_in(op: Any, x: ir.Value, out: ir.Value, back: ir.Value) -> Any:
    return op.Unsqueeze(op.Squeeze(x, out), back)


def _as_it_was(op: Any, x: ir.Value, **_: ir.Value) -> Any:
    return op.Identity(x)


def _same_axis(_: Any, out: ir.Value, back: ir.Value, **__: ir.Value) -> bool:
    return all(axes.const_value is not None and axes.const_value.numpy().tolist() == [0] for axes in (out, back))


def _first_axis(op: Any) -> Any:
    return op.Constant(value_ints=[0])


LINEAR = RewriteRule(_linear, _turned, name="linear")
# So that Add and Gelu stand side by side, and what ONNX Runtime makes of them is one BiasGelu.
GELU_INSIDE = RewriteRule(_gelu_outside, _gelu_inside, name="gelu inside")
NO_SQUEEZE = RewriteRule(_out_and_in, _as_it_was, _same_axis, name="no squeeze")
