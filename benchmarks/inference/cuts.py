"""What a careful user does with rows of different lengths: sort them, and answer them in several smaller batches."""

import numpy as np

from benchmarks.inference.work import Batch


def cut_sorted(batch: Batch, rows: int) -> list[Batch]:
    """Sort the rows by length and cut them into batches of `rows`, each padded only to its own longest row."""
    order = np.argsort(batch.lengths, kind="stable")
    parts = []
    for start in range(0, len(order), rows):
        chosen = order[start : start + rows]
        longest = int(batch.lengths[chosen].max())
        parts.append(Batch(ids=batch.ids[chosen, :longest], mask=batch.mask[chosen, :longest]))
    return parts


def cut_sizes(rows: int) -> list[int]:
    """Return the cuts that are worth a try: halves of a batch, halved again, down to single rows."""
    sizes = []
    while rows > 1:
        rows = -(-rows // 2)
        sizes.append(rows)
    return sizes
