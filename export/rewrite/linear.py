"""Linears on (1, 1, N, C): MatMul and Add, which ONNX Runtime's CPU runs faster than Gemm.

It makes a Gemm of MatMul and Add in two dimensions when it loads a file; leading axes of one element keep them apart.
The weight stays as PyTorch has it, and ONNX Runtime turns it once, at load.
"""

from typing import Any

import onnx_ir as ir
from onnxscript.rewriter import RewriteRule

# The axes of one element before tokens and channels. One would do for Linears, but of a sum and a LayerNormalization on
# three axes ONNX Runtime makes SkipLayerNormalization, which is several times slower than both on the CPU.
LEADING = (0, 1)


def _linear(op: Any, x: ir.Value, weight: ir.Value, bias: ir.Value) -> Any:
    return op.Gemm(x, weight, bias, alpha=1.0, beta=1.0, transA=0, transB=1)


def _turned(op: Any, x: ir.Value, weight: ir.Value, bias: ir.Value) -> Any:
    return product_and_sum(op, x, op.Transpose(weight, perm=[1, 0]), bias)


def product_and_sum(op: Any, x: ir.Value, turned: ir.Value, bias: ir.Value) -> Any:
    """x (N, C) by a turned weight (C, F), and a bias (F,) added: (N, F)."""
    axes = op.Constant(value_ints=LEADING)
    return op.Squeeze(op.Add(op.MatMul(op.Unsqueeze(x, axes), turned), bias), axes)


LINEAR = RewriteRule(_linear, _turned, name="linear")
