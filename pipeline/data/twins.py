"""Finds equal texts, across splits and with different labels; nothing is dropped, all of it is told.

Texts are compared by 64-bit hashes: among two million, two different texts collide with a probability of 1e-7.
"""

from itertools import combinations

import numpy as np
import numpy.typing as npt

from pipeline.data.dataset import SPLITS

Words = npt.NDArray[np.uint64]

# Odd, so that different answers to one text stay different: 2^64 divided by the golden ratio.
_SPREAD = np.uint64(0x9E3779B97F4A7C15)


def find_twins(hashes: Words, answers: Words, splits: npt.NDArray[np.int8]) -> list[str]:
    """Say how many texts stand in two splits, and how many training texts have different labels.

    Args:
        hashes: (rows,) of the normalised texts.
        answers: (rows,) equal for equal labels or tags.
        splits: (rows,) indices into SPLITS.
    """
    notes = []
    both = hashes + answers * _SPREAD
    for first, second in combinations(range(len(SPLITS)), 2):
        here, there = splits == first, splits == second
        again = np.isin(hashes[there], hashes[here])
        if again.any():
            contradicted = int((~np.isin(both[there][again], both[here])).sum())
            notes.append(
                f"{SPLITS[second]} rows with a text that is also in {SPLITS[first]}: {int(again.sum()):,} of "
                f"{int(there.sum()):,}, {contradicted:,} of them with another label there; none was dropped."
            )
    train = splits == 0
    # The different pairs of a text and an answer; a text with more than one is contradicted.
    _, first_rows = np.unique(both[train], return_index=True)
    _, counts = np.unique(hashes[train][first_rows], return_counts=True)
    if (counts > 1).any():
        notes.append(f"texts in train with different labels: {int((counts > 1).sum()):,}; none was dropped.")
    return notes
