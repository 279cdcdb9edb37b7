"""Equal texts across splits, and with different labels."""

import numpy as np

from pipeline.data.twins import find_twins


def find(rows: list[tuple[int, int, int]]) -> list[str]:
    """Rows are (split, text, label)."""
    splits, hashes, answers = np.array(rows).T
    return find_twins(hashes.astype(np.uint64), answers.astype(np.uint64), splits.astype(np.int8))


def test_none() -> None:
    assert find([(0, 1, 0), (0, 1, 0), (1, 2, 0), (2, 3, 1)]) == []


def test_across_splits() -> None:
    rows = [(0, 1, 0), (0, 2, 0), (1, 1, 0), (1, 2, 1), (1, 9, 1), (2, 2, 0), (2, 9, 0), (2, 9, 0)]
    assert find(rows) == [
        "validation rows with a text that is also in train: 2 of 3, "
        "1 of them with another label there; none was dropped.",
        "test rows with a text that is also in train: 1 of 3, 0 of them with another label there; none was dropped.",
        "test rows with a text that is also in validation: 3 of 3, "
        "3 of them with another label there; none was dropped.",
    ]


def test_within_train() -> None:
    rows = [(0, 1, 0), (0, 1, 1), (0, 1, 1), (0, 2, 0), (0, 2, 0), (0, 3, 4), (0, 3, 5), (1, 7, 0), (1, 7, 1)]
    assert find(rows) == ["texts in train with different labels: 2; none was dropped."]
