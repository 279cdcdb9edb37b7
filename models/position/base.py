"""What a position can do: three verbs, each null unless a position says otherwise.

An index counts kept tokens only: padding, wherever it stands, never moves a token.
"""

from torch import Tensor, nn


class Position(nn.Module):
    """The null verbs. A position overrides the one that it is made of, and its table row names it."""

    def add(self, x: Tensor, index: Tensor) -> Tensor:
        """Add to the embeddings: x (N, C), index (N,) -> (N, C)."""
        return x

    def rotate(self, q: Tensor, k: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        """Turn queries and keys: q, k (B, H, T, D), index (T,) -> the same shapes."""
        return q, k

    def bias(self, index: Tensor) -> Tensor | None:
        """What to add to the scores: index (T,) -> (1, H, T, T), or None."""
        return None
