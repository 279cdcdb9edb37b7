"""POOLINGS: the ways from one vector a token to one vector a row.

Every kept token is pooled, cls and sep included. A row without tokens gives zeros.

Cost: O(B·T·C) time.
Does not support weighted pooling.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn


class FirstPooling(nn.Module):
    """The first kept token. Source: "BERT", section 3.2 ([CLS])."""

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        """x (B, T, C), keep (B, T) bool, left-aligned -> (B, C)."""
        return x[:, 0].masked_fill(~keep[:, :1], 0.0)  # (B, C)


class MeanPooling(nn.Module):
    """The mean of the kept tokens. Source: "Sentence-BERT", section 3."""

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        """x (B, T, C), keep (B, T) bool -> (B, C)."""
        return mean_over_tokens(x, keep)


class MaxPooling(nn.Module):
    """The largest value of each feature over the kept tokens. Source: "Sentence-BERT", section 3."""

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        """x (B, T, C), keep (B, T) bool -> (B, C)."""
        return max_over_tokens(x, keep)


class MeanMaxPooling(nn.Module):
    """Mean and maximum side by side. Source: "Universal Language Model Fine-tuning", section 3.3 (concat pooling)."""

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        """x (B, T, C), keep (B, T) bool -> (B, 2C)."""
        return torch.cat((mean_over_tokens(x, keep), max_over_tokens(x, keep)), dim=1)  # (B, 2C)


def mean_over_tokens(x: Tensor, keep: Tensor) -> Tensor:
    """x (B, T, C), keep (B, T) bool -> (B, C); zeros where a row keeps nothing."""
    counts = keep.sum(dim=1, keepdim=True).clamp(min=1)
    return x.masked_fill(~keep[:, :, None], 0.0).sum(dim=1) / counts  # (B, C)


def max_over_tokens(x: Tensor, keep: Tensor) -> Tensor:
    """x (B, T, C), keep (B, T) bool -> (B, C); zeros where a row keeps nothing."""
    largest = x.masked_fill(~keep[:, :, None], float("-inf")).amax(dim=1)  # (B, C)
    return largest.masked_fill(~keep.any(dim=1, keepdim=True), 0.0)


@dataclass(frozen=True, kw_only=True)
class PoolingRow:
    """What a pooling is, and how wide its vector is in model widths."""

    build: Callable[[], nn.Module]
    widths: int
    summary: str


POOLINGS: dict[str, PoolingRow] = {
    "first": PoolingRow(build=FirstPooling, widths=1, summary="the first token, cls"),
    "mean": PoolingRow(build=MeanPooling, widths=1, summary="the mean of all tokens"),
    "max": PoolingRow(build=MaxPooling, widths=1, summary="the maximum of each feature over all tokens"),
    "mean_max": PoolingRow(build=MeanMaxPooling, widths=2, summary="mean and maximum side by side"),
}
