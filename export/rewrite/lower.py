"""Operators that came after opset 18, in those of opset 18: for runtimes that do not know the newer ones.

What ONNX Runtime's optimiser knows a fused form of is written as it looks for it.
"""

import math
from typing import Any

import onnx_ir as ir
from onnxscript.rewriter import RewriteRule


def _attention(op: Any, q: ir.Value, k: ir.Value, v: ir.Value, mask: ir.Value) -> Any:
    return op.Attention(q, k, v, mask, _outputs=["mixed"])


def _written_out(op: Any, q: Any, k: ir.Value, v: ir.Value, mask: ir.Value, mixed: Any) -> Any:
    """Source: "Attention Is All You Need", equation 1."""
    attributes = mixed.producer().attributes
    num_heads = attributes["q_num_heads"].as_int()
    width = q.shape[2] // num_heads
    apart, joined = op.Constant(value_ints=[0, 0, num_heads, width]), op.Constant(value_ints=[0, 0, num_heads * width])
    q, v = (op.Transpose(op.Reshape(x, apart), perm=[0, 2, 1, 3]) for x in (q, v))
    k = op.Transpose(op.Reshape(k, apart), perm=[0, 2, 3, 1])
    scores = op.MatMul(op.Mul(q, op.Constant(value_float=width**-0.5)), k)
    weights = op.Softmax(_hide(op, scores, mask), axis=-1)
    return op.Reshape(op.Transpose(op.MatMul(weights, v), perm=[0, 2, 1, 3]), joined)


def _hide(op: Any, scores: ir.Value, mask: ir.Value) -> Any:
    # Sums and choices broadcast: neither needs the mask of each query.
    expand = mask.producer()
    if expand is not None and expand.op_type == "Expand" and expand.inputs[0] is not None:
        mask = expand.inputs[0]
    if mask.dtype == ir.DataType.BOOL:
        return op.Where(mask, scores, op.Constant(value_float=-math.inf))
    return op.Add(scores, mask)


def _on_three_axes(_: Any, q: ir.Value, mixed: Any, **__: Any) -> bool:
    known = {"q_num_heads", "kv_num_heads"}
    return mixed.producer().attributes.keys() == known and q.shape is not None and isinstance(q.shape[2], int)


def _gelu(op: Any, x: ir.Value) -> Any:
    return op.Gelu(x, approximate="none")


def _by_erf(op: Any, x: ir.Value) -> Any:
    """Source: "Gaussian Error Linear Units", section 2."""
    of_normal = op.Add(op.Erf(op.Div(x, op.Constant(value_float=math.sqrt(2.0)))), op.Constant(value_float=1.0))
    return op.Mul(op.Mul(x, of_normal), op.Constant(value_float=0.5))


ATTENTION_WRITTEN_OUT = RewriteRule(_attention, _written_out, _on_three_axes, name="attention written out")
GELU_BY_ERF = RewriteRule(_gelu, _by_erf, name="gelu by erf")
