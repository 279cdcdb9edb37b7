"""Attention on (B, L, C): a projection each for queries, keys and values; no Transpose, no Where a layer.

ONNX Runtime's CPU computes three products of width C faster than one of width 3C. The weight stays as PyTorch has it,
and is turned and split once, at load. A Gather each lays queries, keys and values out for the operator, which takes
heads side by side and gives them so. Packing shows attention a cell of every row, so no query is without a key, and
none needs the zeros that the rule for those would write.

A hidden key gets FAINT added to its score instead of −∞. ONNX Runtime's softmax answers −∞ with a denormal number, and
products with those take up to ten times as long. Packing repeats a seen key of the row in every hidden cell, so a
hidden key's weight is at most e^FAINT of that one's.
"""

from typing import Any

import onnx_ir as ir
from onnxscript.rewriter import RewriteRule

from export.rewrite.linear import product_and_sum

PARTS = 3
# 512 keys of weight e^-64 ≈ 2e-28 are beyond what float64 tells from none, and stay above the denormal numbers, 1e-38,
# while scores of a row differ by less than 23.
FAINT = -64.0


def _heads_apart(
    op: Any,
    x: ir.Value,
    weight: ir.Value,
    bias: ir.Value,
    tokens: ir.Value,
    rectangle: ir.Value,
    heads: ir.Value,
    mask: ir.Value,
    empty: ir.Value,
    zero: ir.Value,
    joined: ir.Value,
    slot: ir.Value,
) -> Any:
    qkv = op.Gemm(x, weight, bias, alpha=1.0, beta=1.0, transA=0, transB=1)
    parts = op.Split(
        op.Reshape(op.Gather(qkv, tokens, axis=0), rectangle), axis=2, num_outputs=PARTS, _outputs=["q", "k", "v"]
    )
    q, k, v = (op.Transpose(op.Reshape(part, heads), perm=[0, 2, 1, 3]) for part in parts)
    mixed = op.Attention(
        *(q, k, v, mask),
        **{"is_causal": 0, "qk_matmul_output_mode": 0, "softcap": 0.0},
        # A scale of one's own would be lost.
        _allow_other_attributes=False,
        _outputs=["mixed"],
    )
    mixed = op.Transpose(op.Where(empty, zero, mixed), perm=[0, 2, 1, 3])
    return op.Gather(op.Reshape(mixed, joined), slot, axis=0)


def _side_by_side(
    op: Any,
    x: ir.Value,
    weight: ir.Value,
    bias: ir.Value,
    tokens: Any,
    mask: ir.Value,
    joined: ir.Value,
    slot: ir.Value,
    mixed: Any,
    **_: Any,
) -> Any:
    B, num_heads, L, width = mixed.shape
    turned = op.Transpose(weight, perm=[1, 0])
    weights = op.Split(turned, axis=1, num_outputs=PARTS, _outputs=["w_q", "w_k", "w_v"])
    biases = op.Split(bias, axis=0, num_outputs=PARTS, _outputs=["b_q", "b_k", "b_v"])
    # Gathered as (B, L) and not flattened before, tokens need no Reshape after.
    cells = tokens.producer().inputs[0]
    laid_out = []
    for part, offset in zip(weights, biases, strict=True):
        value = op.Gather(product_and_sum(op, x, part, offset), cells, axis=0)
        value.shape, value.dtype = ir.Shape([B, L, num_heads * width]), mixed.dtype
        laid_out.append(value)
    mixed = op.Attention(*laid_out, _additive(op, mask), q_num_heads=num_heads, kv_num_heads=num_heads)
    return op.Gather(op.Reshape(mixed, joined), slot, axis=0)


def _additive(op: Any, mask: Any) -> Any:
    """Return the mask as what is added to the scores, if all queries of a row see the same keys: packing's rule."""
    expand = mask.producer()
    if expand is None or expand.op_type != "Expand":
        return mask
    keys, sizes = expand.inputs
    # (B, 1, 1, L), unlike what hides a key from the queries before it.
    if keys is None or keys.shape is None or keys.shape[2] != 1:
        return mask
    # It opens all keys of a row without any, and packing leaves no such row.
    opened = keys.producer()
    if opened.op_type == "Or" and opened.inputs[1].producer().op_type == "Not":
        keys = opened.inputs[0]
    added = op.Where(keys, op.Constant(value_float=0.0), op.Constant(value_float=FAINT))
    return op.Expand(added, sizes)


def _sizes_are_known(_: Any, tokens: Any, mixed: Any, **__: Any) -> bool:
    flattened = tokens.producer() is not None and tokens.producer().op_type == "Reshape"
    return flattened and all(isinstance(mixed.shape[axis], int) for axis in (1, 3))


ATTENTION = RewriteRule(_heads_apart, _side_by_side, _sizes_are_known, name="attention")
