"""One encoder layer: self-attention and feed-forward, each with a residual and a LayerNorm; and NORMS.

Cost: that of its two parts, and O(N·C).
Does not support dropout inside its parts: as in section 5.4 of the paper, dropout falls on what a part adds to the
residual, so that the fused attention kernels run in training too.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from models.packing import Packing


class PreNormBlock(nn.Module):
    """x + Part(LayerNorm(x)). Source: "On Layer Normalization in the Transformer Architecture", table 1, right."""

    def __init__(self, dim: int, *, attention: nn.Module, feed_forward: nn.Module, dropout: float) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(dim)
        self.attention = attention
        self.feed_forward_norm = nn.LayerNorm(dim)
        self.feed_forward = feed_forward
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, packing: Packing, bias: Tensor | None) -> Tensor:
        """x (N, C) -> (N, C)."""
        x = x + self.dropout(self.attention(self.attention_norm(x), packing, bias))
        x = x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        return x


class PostNormBlock(nn.Module):
    """LayerNorm(x + Part(x)). Source: "Attention Is All You Need", section 3.1."""

    def __init__(self, dim: int, *, attention: nn.Module, feed_forward: nn.Module, dropout: float) -> None:
        super().__init__()
        self.attention = attention
        self.attention_norm = nn.LayerNorm(dim)
        self.feed_forward = feed_forward
        self.feed_forward_norm = nn.LayerNorm(dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, packing: Packing, bias: Tensor | None) -> Tensor:
        """x (N, C) -> (N, C)."""
        x = self.attention_norm(x + self.dropout(self.attention(x, packing, bias)))
        x = self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))
        return x


Block = PreNormBlock | PostNormBlock


@dataclass(frozen=True, kw_only=True)
class NormRow:
    """Where the LayerNorms stand."""

    build: Callable[..., Block]  # (dim, *, attention, feed_forward, dropout)
    final: Callable[[int], nn.Module]  # what stands after the last block
    summary: str


NORMS: dict[str, NormRow] = {
    "pre": NormRow(
        build=PreNormBlock,
        final=nn.LayerNorm,
        summary="before each part and once at the end; trains from scratch without care",
    ),
    "post": NormRow(
        build=PostNormBlock,
        final=nn.Identity,
        summary="after each residual, as in the paper; wants a warm-up",
    ),
}
