"""Sinusoidal positions: fixed waves of geometrically growing length, added to the embeddings.

Cost: O(N·C) time; a table of max_len·C floats, rebuilt from the config and never part of the weights.
Does not support an index of max_len or more.
"""

import math

import torch
from torch import Tensor

from models.position.base import Position


def sinusoidal_table(max_len: int, dim: int) -> Tensor:
    """PE(p, 2i) = sin(p / 10000^(2i/C)), PE(p, 2i+1) = cos(p / 10000^(2i/C)).

    Source: "Attention Is All You Need", section 3.5.

    Returns:
        (max_len, dim) float64; an odd dim ends on a sine.
    """
    position = torch.arange(max_len, dtype=torch.float64)
    frequency = torch.exp(torch.arange(0, dim, 2, dtype=torch.float64) * (-math.log(10000.0) / dim))
    angle = position[:, None] * frequency[None, :]
    return torch.stack((angle.sin(), angle.cos()), dim=2).flatten(1)[:, :dim].contiguous()  # (max_len, C)


class SinusoidalPosition(Position):
    """Adds a row of the table to each token."""

    table: Tensor

    def __init__(self, *, max_len: int, dim: int) -> None:
        super().__init__()
        # Rounded once: a float64 copy of the model then computes the same function as the model.
        self.register_buffer("table", sinusoidal_table(max_len, dim).float(), persistent=False)

    def add(self, x: Tensor, index: Tensor) -> Tensor:
        """x (N, C), index (N,) -> (N, C)."""
        return x + self.table.index_select(0, index)
