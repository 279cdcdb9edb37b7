"""Scaled dot-product attention written out: softmax(QKᵀ / √D) V, with the weights on request.

Cost: O(T·S·D) time and O(T·S) floats a head, kept for the backward pass.
Does not support sequences whose (T, S) weights do not fit in memory.
"""

from typing import Final

from torch import Tensor, nn

from models.functional import masked_softmax
from models.masks import broadcast_keep


class FullAttention(nn.Module):
    """Attention with the (T, S) weights in memory. Source: "Attention Is All You Need", equation 1."""

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
        return self.weights(q, k, keep, bias) @ v  # (B, H, T, Dv)

    def weights(self, q: Tensor, k: Tensor, keep: Tensor | None, bias: Tensor | None) -> Tensor:
        """The attention weights, (B, H, T, S): each row sums to 1, or is zero. Arguments as in `forward`."""
        scale = q.size(-1) ** -0.5
        scores = (q * scale) @ k.transpose(-2, -1)  # (B, H, T, S)
        if bias is not None:
            scores = scores + bias
        return masked_softmax(scores, broadcast_keep(keep, self.causal, q, k))
