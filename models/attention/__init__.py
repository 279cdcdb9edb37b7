"""ATTENTIONS: every attention mechanism of Ferry in one table.

The config's checks, the command line's choices, the tests' parameters and the README's table come from here. A new
mechanism is one file in this folder, one oracle in tests/oracles.py and one row.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import nn

from models.attention.full import FullAttention
from models.attention.sdpa import SDPAttention

if TYPE_CHECKING:
    from models.config import EncoderConfig


@dataclass(frozen=True, kw_only=True)
class AttentionRow:
    """What a mechanism is and what it can take.

    `build` gives a module whose forward(q, k, v, keep, bias) maps q (B, H, T, D), k (B, H, S, D), v (B, H, S, Dv),
    keep (B, S) bool or None, and bias (1 or B, H, T, S) or None to (B, H, T, Dv).
    """

    build: Callable[["EncoderConfig"], nn.Module]
    causal: bool  # can be causal
    pairwise: bool  # keep may be (B, T, S)
    bias: bool  # takes a bias on the scores
    weights: bool  # has weights(q, k, keep, bias) -> (B, H, T, S)
    core: str  # the operator that each layer has exactly one of: "fused" (scaled_dot_product_attention) or "softmax"
    time: str  # a head
    memory: str  # floats a head
    summary: str


ATTENTIONS: dict[str, AttentionRow] = {
    "full": AttentionRow(
        build=lambda config: FullAttention(causal=config.causal),
        causal=True,
        pairwise=True,
        bias=True,
        weights=True,
        core="softmax",
        time="O(T²·D)",
        memory="O(T²)",
        summary="softmax(QKᵀ/√D)V written out, to be read and looked into",
    ),
    "sdpa": AttentionRow(
        build=lambda config: SDPAttention(causal=config.causal),
        causal=True,
        pairwise=True,
        bias=True,
        weights=False,
        core="fused",
        time="O(T²·D)",
        memory="O(T·D) in a fused kernel",
        summary="the same by PyTorch's fused kernels, and ONNX's Attention operator",
    ),
}
