"""Packing: the kept tokens of all rows stand in one (N, …) tensor, and padding is never computed.

Every token-wise operator (embedding, normalisation, projections, feed-forward) runs on the N packed tokens. Attention
sees a rectangle (B, T, …) in which each row's kept tokens are moved to columns 0 … n − 1, so that padding on the left,
on the right or between tokens is all the same to it. Packed tokens are in row-major order, hence the token at cell
(b, t) of that rectangle is number start[b] + t: both ways are gathers, nothing is scattered.

Cost: O(B·T) integers once a batch; two gathers of (N, C) a layer.
Does not support a rectangle narrower than the batch's T.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Packing(NamedTuple):
    """Where the kept tokens of a batch stand. Cells are numbered b·T + t; a cell without a token names token N."""

    counts: Tensor  # (B,) int64: kept tokens of each row
    keep: Tensor  # (B, T) bool: cells of the left-aligned rectangle that hold a token
    column: Tensor  # (T,) int64: the position index of each column of that rectangle
    position: Tensor  # (N,) int64: the position index of each packed token, counting kept tokens only
    source: Tensor  # (N,) int64: its cell in the input
    slot: Tensor  # (N,) int64: its cell in the left-aligned rectangle
    aligned: Tensor  # (B, T) int64: the packed token at each cell of the left-aligned rectangle
    home: Tensor  # (B, T) int64: the packed token at each cell of the input


def plan_packing(attention_mask: Tensor) -> Packing:
    """Work out where each token goes.

    Args:
        attention_mask: (B, T) int64, 1 at a token and 0 at padding, in any pattern; a row may be all zeros.

    Raises:
        ValueError: if attention_mask is not two-dimensional.
    """
    if attention_mask.dim() != 2:
        raise ValueError(
            f"attention_mask must be (batch, sequence); got {attention_mask.dim()} dimensions. Add the batch axis."
        )
    B, T = attention_mask.shape
    device = attention_mask.device
    mask = attention_mask != 0
    ordinal = mask.to(torch.int64).cumsum(dim=1) - 1
    counts = mask.sum(dim=1)
    start = counts.cumsum(dim=0) - counts

    source = mask.reshape(-1).nonzero().squeeze(1)  # (N,)
    N = source.size(0)
    row = torch.arange(B, device=device)
    column = torch.arange(T, device=device)
    keep = column[None, :] < counts[:, None]
    return Packing(
        counts=counts,
        keep=keep,
        column=column,
        position=ordinal.reshape(-1).index_select(0, source),
        source=source,
        slot=(row[:, None] * T + ordinal).reshape(-1).index_select(0, source),
        aligned=torch.where(keep, start[:, None] + column[None, :], N),
        home=torch.where(mask, start[:, None] + ordinal, N),
    )


def pack(x: Tensor, cells: Tensor) -> Tensor:
    """Take the tokens at `cells` out of a rectangle: (B, T, …) and (N,) -> (N, …).

    Args:
        x: (B, T, …), the input (cells = packing.source) or the left-aligned rectangle (cells = packing.slot).
        cells: (N,) int64.
    """
    return x.flatten(0, 1).index_select(0, cells)  # (N, …)


def unpack(x: Tensor, tokens: Tensor) -> Tensor:
    """Lay packed tokens out in a rectangle, zeros where there is none: (N, C) and (B, T) -> (B, T, C).

    Args:
        x: (N, C).
        tokens: (B, T) int64, packing.aligned (left-aligned) or packing.home (where the tokens stood in the input).
    """
    with_zero_row = torch.cat((x, x.new_zeros(1, x.size(1))))  # (N + 1, C)
    B, T = tokens.shape
    return with_zero_row.index_select(0, tokens.flatten()).view(B, T, x.size(1))
