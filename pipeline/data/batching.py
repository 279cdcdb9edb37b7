"""Batches of texts of similar length; their order is a pure function of the seed and the epoch."""

import random
from collections.abc import Sequence


def length_buckets(lengths: Sequence[int], *, batch_tokens: int, seed: int, epoch: int) -> list[list[int]]:
    """Group rows into batches of at most `batch_tokens` padded tokens, and shuffle.

    Rows of one length are shuffled among each other, cut into batches from the shortest to the longest, and the batches
    are shuffled. Every row appears exactly once.

    Args:
        lengths: the length of every row in tokens, each at least 1.
        batch_tokens: the most that rows × longest row of a batch may be; at least the longest length.
        seed: the run's seed.
        epoch: the epoch, from 0.

    Raises:
        ValueError: if one row alone is longer than `batch_tokens`.
    """
    # A string seed is hashed the same way in every process and on every platform.
    shuffled = random.Random(f"batches {seed} {epoch}")
    rows = list(range(len(lengths)))
    shuffled.shuffle(rows)
    rows.sort(key=lambda row: lengths[row])
    batches = cut_batches(rows, lengths, batch_tokens=batch_tokens)
    shuffled.shuffle(batches)
    return batches


def cut_batches(rows: Sequence[int], lengths: Sequence[int], *, batch_tokens: int) -> list[list[int]]:
    """Cut rows, in the order given, into batches of at most `batch_tokens` padded tokens.

    Raises:
        ValueError: if one row alone is longer than `batch_tokens`.
    """
    batches: list[list[int]] = []
    longest = 0
    for row in rows:
        if lengths[row] > batch_tokens:
            raise ValueError(f"a batch of {batch_tokens} tokens can't hold row {row} of {lengths[row]} tokens.")
        longest = max(longest, lengths[row])
        if not batches or longest * (len(batches[-1]) + 1) > batch_tokens:
            batches.append([])
            longest = lengths[row]
        batches[-1].append(row)
    return batches
