"""Packing: the kept tokens of all rows stand in one (N, …) tensor, and padding is never computed.

Every token-wise operator (embedding, normalisation, projections, feed-forward) runs on the N packed tokens. Attention
sees a rectangle (B, L, …), L the longest row's tokens and at least two, in which each row's kept tokens are moved to
columns 0 … n − 1: padding on the left, on the right or between tokens is all the same to it, and costs nothing. Packed
tokens are in row-major order, hence the token at cell (b, t) of that rectangle is number start[b] + t: both ways are
gathers, nothing is scattered.

Cells without a token repeat one of their row's, so that a gather fills them and nothing else has to; who reads a
rectangle masks them. A batch without any token packs its first cell, so that there is something to gather; and a row
without any shows attention its first cell, so that no softmax is empty. Nobody takes what comes of either.

Cost: O(B·T) integers once a batch; two gathers of (N, C) a layer.
Does not support a rectangle for each row: a short row beside a long one is padded inside attention. Files for ONNX
Runtime's CPU give each group of rows its own (`export/rewrite/row_groups.py`).
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Packing(NamedTuple):
    """Where the kept tokens of a batch stand. Cells are numbered b·T + t, or b·L + t in the left-aligned rectangle."""

    counts: Tensor  # (B,) int64: kept tokens of each row
    keep: Tensor  # (B, L) bool: cells of the left-aligned rectangle that hold a token
    seen: Tensor  # (B, L) bool: cells that attention looks at: those, and in a row without tokens the first
    column: Tensor  # (L,) int64: the position index of each column of that rectangle
    position: Tensor  # (N,) int64: the position index of each packed token, counting kept tokens only
    source: Tensor  # (N,) int64: its cell in the input
    slot: Tensor  # (N,) int64: its cell in the left-aligned rectangle
    aligned: Tensor  # (B, L) int64: the packed token at each cell of the left-aligned rectangle
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
    ordinal = (mask.to(torch.int64).cumsum(dim=1) - 1).clamp(min=0)
    counts = mask.sum(dim=1)
    # The first token of each row; of an empty row, one of another's.
    start = (counts.cumsum(dim=0) - counts.clamp(min=1)).clamp(min=0)

    flat = mask.reshape(-1)
    first = torch.arange(B * T, device=device) == 0
    source = (flat | (first & ~flat.any())).nonzero().squeeze(1)  # (N,)
    # At least two columns: AOTInductor can't build a product of matrices that may have one row.
    longest = counts.max().clamp(min=2)
    column = (torch.arange(T + 1, device=device) < longest).nonzero().squeeze(1)  # (L,)
    L = column.size(0)
    torch._check(L >= 2)
    row = torch.arange(B, device=device)
    last = (counts - 1).clamp(min=0)
    return Packing(
        counts=counts,
        keep=column[None, :] < counts[:, None],
        seen=column[None, :] < counts.clamp(min=1)[:, None],
        column=column,
        position=ordinal.reshape(-1).index_select(0, source),
        source=source,
        slot=(row[:, None] * L + ordinal).reshape(-1).index_select(0, source),
        aligned=start[:, None] + torch.minimum(column[None, :], last[:, None]),
        home=start[:, None] + ordinal,
    )


def pack(x: Tensor, cells: Tensor) -> Tensor:
    """Take the tokens at `cells` out of a rectangle: (B, T, …) and (N,) -> (N, …).

    Args:
        x: (B, T, …), the input (cells = packing.source) or the left-aligned rectangle (cells = packing.slot).
        cells: (N,) int64.
    """
    return x.flatten(0, 1).index_select(0, cells)  # (N, …)


def lay_out(x: Tensor, tokens: Tensor) -> Tensor:
    """Lay packed tokens out in a rectangle, any of them where there is none: (N, C) and (B, T) -> (B, T, C).

    Args:
        x: (N, C).
        tokens: (B, T) int64, packing.aligned (left-aligned) or packing.home (where the tokens stood in the input).
    """
    B, T = tokens.shape
    return x.index_select(0, tokens.flatten()).view(B, T, x.size(1))


def unpack(x: Tensor, tokens: Tensor, keep: Tensor) -> Tensor:
    """Lay packed tokens out in a rectangle, zeros where there is none: (N, C) and (B, T) -> (B, T, C).

    Args:
        x: (N, C).
        tokens: (B, T) int64, as for `lay_out`.
        keep: (B, T) bool, True where there is a token.
    """
    return lay_out(x, tokens).masked_fill(~keep[:, :, None], 0.0)
