"""Cuts validation and test rows from training rows, by a hash of each text alone.

So a text goes where it goes however many others there are: equal texts never part, and rows that are added move no
other row. In expectation every class is cut in the shares asked for. Three guarantees move a text against its hash, and
only while they need it: every class keeps a text in train; a class with at least 1 / share texts has one in each split
that is cut; no such split is empty.
"""

import numpy as np
import numpy.typing as npt

TRAIN, VALIDATION, TEST = range(3)

Hashes = npt.NDArray[np.uint64]
Indices = npt.NDArray[np.int64]


def cut(hashes: Hashes, texts: Indices, labels: Indices, *, shares: dict[int, float]) -> npt.NDArray[np.int8]:
    """Return the split of every text.

    Args:
        hashes: (T,) uniformly distributed, one for each different text.
        texts: (P,) with `labels`, every different pair of a text's index and a label that it has.
        labels: (P,) labels, 0 or greater; a text may have several, and must have one.
        shares: for each split that is to be cut (VALIDATION, TEST), its share, above 0; together below 1.

    Raises:
        ValueError: if there are too few texts for every class to keep one in train and every split to have one.
    """
    places = np.zeros(len(hashes), np.int8)
    position = hashes.astype(np.float64) / 2.0**64
    start = 0.0
    # Test first, so that its rows do not depend on the share of validation.
    for split in sorted(shares, reverse=True):
        places[(start <= position) & (position < start + shares[split])] = split
        start += shares[split]
    _Classes(hashes, texts, labels, places).guarantee(shares)
    return places


class _Classes:
    """Moves texts between splits until every guarantee holds; changes `places`."""

    def __init__(self, hashes: Hashes, texts: Indices, labels: Indices, places: npt.NDArray[np.int8]) -> None:
        # By label, and within it by hash: what is first in order is moved first, whatever the order of the rows.
        order = np.lexsort((hashes[texts], labels))
        self._by_label = texts[order]
        self._size = np.bincount(labels)
        self._end = np.cumsum(self._size)
        self._labels = labels
        by_text = np.argsort(texts, kind="stable")
        self._by_text = labels[by_text]
        self._text_end = np.cumsum(np.bincount(texts, minlength=len(hashes)))
        self._places = places
        self._hashes = hashes
        self._in_train = np.bincount(labels[places[texts] == TRAIN], minlength=len(self._size))
        self._texts = texts

    def guarantee(self, shares: dict[int, float]) -> None:
        for label in np.flatnonzero((self._in_train == 0) & (self._size > 0)).tolist():
            # A move for one class may have served another.
            if not self._in_train[label]:
                self._move(self._texts_of(label)[-1], TRAIN)
        for split in sorted(shares, reverse=True):
            there = np.bincount(self._labels[self._places[self._texts] == split], minlength=len(self._size))
            for label in np.flatnonzero((there == 0) & (self._size * shares[split] >= 1)).tolist():
                own = self._texts_of(label)
                if not (self._places[own] == split).any():
                    self._move_first(own, split)
        for split in sorted(shares, reverse=True):
            everything = np.argsort(self._hashes)
            if not ((self._places == split).any() or self._move_first(everything, split) or self._share(split)):
                raise ValueError(
                    f"{len(self._hashes)} different texts are too few to cut validation and test rows from, as every "
                    "class keeps one to train on. Give files for them, or more rows."
                )

    def _texts_of(self, label: int) -> Indices:
        return self._by_label[self._end[label] - self._size[label] : self._end[label]]

    def _labels_of(self, text: int) -> Indices:
        return self._by_text[self._text_end[text - 1] if text else 0 : self._text_end[text]]

    def _move_first(self, texts: Indices, split: int) -> bool:
        """Move the first text that is in train and whose classes all keep another one there."""
        for text in texts[self._places[texts] == TRAIN]:
            if (self._in_train[self._labels_of(text)] > 1).all():
                self._move(text, split)
                return True
        return False

    def _share(self, split: int) -> bool:
        """Move a text from the other split that was cut, if it has another one."""
        cut_off = np.flatnonzero(self._places != TRAIN)
        if len(cut_off) > 1:
            self._move(int(cut_off[np.argmin(self._hashes[cut_off])]), split)
        return len(cut_off) > 1

    def _move(self, text: int, split: int) -> None:
        own = self._labels_of(text)
        self._in_train[own] += int(split == TRAIN) - int(self._places[text] == TRAIN)
        self._places[text] = split
