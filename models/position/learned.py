"""Learned positions: one trained vector a position, added to the embeddings.

Cost: O(N·C) time; max_len·C parameters.
Does not support an index of max_len or more, and knows nothing about positions that training never reached.
"""

from torch import Tensor, nn

from models.position.base import Position


class LearnedPosition(Position):
    """Adds a trained vector to each token. Source: "BERT", section 3.2 and its reference code."""

    def __init__(self, *, max_len: int, dim: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(max_len, dim)
        nn.init.normal_(self.embedding.weight, std=0.02)

    def add(self, x: Tensor, index: Tensor) -> Tensor:
        """x (N, C), index (N,) -> (N, C)."""
        x = x + self.embedding(index)
        return x
