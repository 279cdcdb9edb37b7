"""Keep-masks: boolean tensors, True where a query may attend to a key.

Cost: O(T·S) booleans a row once a mask is causal or pairwise, O(S) otherwise.
Does not support additive masks: what is added to the scores is a position's bias.
"""

import torch
from torch import Tensor


def broadcast_keep(keep: Tensor | None, causal: bool, q: Tensor, k: Tensor) -> Tensor | None:
    """Bring a keep-mask to a shape that broadcasts over the scores (B, H, T, S), the causal rule included.

    Args:
        keep: (B, S) or pairwise (B, T, S) bool, True = may be attended to; None keeps everything.
        causal: whether query t sees keys 0 … t only ("Attention Is All You Need", section 3.2.3).
        q: (B, H, T, D) queries, for T and the device.
        k: (B, H, S, D) keys, for S.

    Returns:
        (1 or B, 1, 1 or T, S) bool, or None when nothing is masked.
    """
    if causal:
        rows = torch.arange(q.size(2), device=q.device)
        columns = torch.arange(k.size(2), device=q.device)
        seen = (columns[None, :] <= rows[:, None])[None, None]  # (1, 1, T, S)
        if keep is None:
            return seen
        return seen & _over_heads(keep)
    if keep is None:
        return None
    return _over_heads(keep)


def open_empty_rows(keep: Tensor) -> tuple[Tensor, Tensor]:
    """Open the queries that may attend to nothing, so that no softmax runs over an empty set.

    The caller sets the answer of those queries to zero. That way the rule for empty rows is ours and not a kernel's:
    kernels give NaN, zeros or the mean of the values, each on another device.

    Args:
        keep: (…, S) bool.

    Returns:
        keep with empty queries opened, (…, S) bool; and which queries were empty, (…, 1) bool.
    """
    empty = ~keep.any(dim=-1, keepdim=True)
    return keep | empty, empty


def _over_heads(keep: Tensor) -> Tensor:
    if keep.dim() == 2:
        return keep[:, None, None, :]  # (B, 1, 1, S)
    return keep[:, None]  # (B, 1, T, S)
