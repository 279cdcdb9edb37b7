"""Gives every row its split: rows of given files keep it; the training files' rows are cut where a file is missing."""

import numpy as np
import numpy.typing as npt

from pipeline.data.cut import TEST, TRAIN, VALIDATION, cut
from pipeline.data.labels import NONE
from pipeline.data.rows import Rows


def place_rows(rows: Rows, *, shares: dict[int, float]) -> npt.NDArray[np.int8]:
    """Return (rows,) indices into SPLITS.

    A training file's rows without a class train nothing: they go to test and validation in the ratio of their shares if
    both are cut, and to validation if not, so that given test files stay as they are.

    Args:
        rows: all rows, at least one of them from a training file.
        shares: the share of each split that is to be cut.

    Raises:
        ValueError: if there are too few rows to cut.
    """
    places = rows.splits.copy()
    if not rows.tagged:
        stray = (places == TRAIN) & (rows.labels == NONE)
        if stray.any():
            places[stray] = VALIDATION
            if shares.keys() == {VALIDATION, TEST}:
                test = rows.hashes / 2.0**64 < shares[TEST] / (shares[TEST] + shares[VALIDATION])
                places[stray & test] = TEST
    train = np.flatnonzero(places == TRAIN)
    if not shares or not len(train):
        return places
    hashes, text_of_row = np.unique(rows.hashes[train], return_inverse=True)
    texts, labels = _pairs(rows, train, text_of_row)
    places[train] = cut(hashes, texts, labels, shares=shares)[text_of_row]
    return places


def _pairs(
    rows: Rows, train: npt.NDArray[np.int64], text_of_row: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The different pairs of a text and a label that it has."""
    if rows.tagged:
        lengths = np.diff(rows.ends, prepend=0)
        own = np.zeros(len(rows), bool)
        own[train] = True
        labels = rows.labels[np.repeat(own, lengths)]
        texts = np.repeat(text_of_row, lengths[train])
    else:
        labels, texts = rows.labels[train], text_of_row
    # One number a pair: sorting these is several times cheaper than sorting rows of two.
    width = int(labels.max()) + 1
    pairs = np.unique(texts * width + labels)
    return pairs // width, pairs % width
