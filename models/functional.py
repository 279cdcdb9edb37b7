"""The three small functions that every attention layer shares: heads apart, heads together, a softmax under a mask.

Cost: reshapes are views where strides allow; the softmax is O(T·S) a head in time and memory.
"""

from torch import Tensor

from models.masks import open_empty_rows


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """Cut the width into heads: (B, T, C) -> (B, H, T, C / H)."""
    return x.view(x.size(0), x.size(1), num_heads, -1).transpose(1, 2)  # (B, H, T, D)


def merge_heads(x: Tensor) -> Tensor:
    """Join the heads again: (B, H, T, D) -> (B, T, H·D). The inverse of `split_heads`."""
    return x.transpose(1, 2).flatten(2)  # (B, T, C)


def masked_softmax(scores: Tensor, keep: Tensor | None) -> Tensor:
    """Softmax over the kept keys; zeros at the others, and all zeros where a query keeps none.

    Safe in half precision, forward and backward: masked scores become −inf, and never a whole row of them.

    Args:
        scores: (B, H, T, S) float.
        keep: bool, broadcasts over scores; None keeps everything.

    Returns:
        (B, H, T, S): each row sums to 1, or is zero.
    """
    if keep is None:
        return scores.softmax(dim=-1)
    opened, empty = open_empty_rows(keep)
    weights = scores.masked_fill(~opened, float("-inf")).softmax(dim=-1)
    return weights.masked_fill(empty, 0.0)
