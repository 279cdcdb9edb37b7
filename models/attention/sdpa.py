"""Scaled dot-product attention by PyTorch's fused kernels: the same function as `full`, without its memory.

Cost: O(T·S·D) time; O(T·S) booleans a row for the mask, and no (T, S) floats where a fused kernel runs.
Does not support looking at the weights; use `full` for that.
"""

from typing import Final

import torch.nn.functional as F
from torch import Tensor, nn

from models.masks import broadcast_keep, open_empty_rows


class SDPAttention(nn.Module):
    """`torch.nn.functional.scaled_dot_product_attention` under our rule for empty rows.

    Sources: "Attention Is All You Need", equation 1; "FlashAttention", algorithm 1, where that kernel is chosen.
    """

    causal: Final[bool]

    def __init__(self, *, causal: bool = False) -> None:
        super().__init__()
        self.causal = causal

    def forward(self, q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None, bias: Tensor | None) -> Tensor:
        """Attend from each query to the keys that it may see.

        Args:
            q: (B, H, T, D).
            k: (B, H, S, D).
            v: (B, H, S, Dv).
            keep: (B, S) or pairwise (B, T, S) bool, True = may be attended to; or None.
            bias: (1 or B, H, T, S) float, finite, added to the scaled scores; or None.

        Returns:
            (B, H, T, Dv); zeros where a query has nothing to attend to.
        """
        mask = broadcast_keep(keep, self.causal, q, k)
        if mask is None:
            return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        opened, empty = open_empty_rows(mask)
        # ONNX Runtime's Attention on the CPU does not broadcast a mask over the queries.
        opened = opened.expand(q.size(0), 1, q.size(2), k.size(2))
        if bias is None:
            out = F.scaled_dot_product_attention(q, k, v, attn_mask=opened)
        else:
            out = F.scaled_dot_product_attention(q, k, v, attn_mask=bias.masked_fill(~opened, float("-inf")))
        return out.masked_fill(empty, 0.0)
