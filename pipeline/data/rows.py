"""All rows of own files, of every split, while they are read.

Texts are on disk. In memory are 21 bytes a text that has one label; a tagged sentence takes 33, and 4 a word.
"""

import hashlib
from array import array
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from export.contract import normalise_text
from pipeline.data.store import TextWriter

# Keeps these hashes apart from those of anything else.
_PERSON = b"ferry rows"


class Rows:
    """What was read so far, a column an array."""

    def __init__(self, writer: TextWriter, *, tagged: bool) -> None:
        """Start without rows; texts go to `writer`; `tagged` rows have a label a word."""
        self.writer = writer
        self.tagged = tagged
        self.empty = 0
        self._hashes = array("Q")
        self._splits = array("b")
        self._labels = array("i")
        self._ends = array("q")
        self._answers = array("Q")

    def __len__(self) -> int:
        return len(self._splits)

    def add(self, split: int, text: str, labels: Sequence[int]) -> None:
        """Add a row: its split, its text, and its labels: one or, for tagging, one a word."""
        normal = normalise_text(text)
        self.empty += not normal
        self.writer.add(text)
        self._hashes.append(_hash(normal.encode("utf-8")))
        self._splits.append(split)
        self._labels.extend(labels)
        if self.tagged:
            self._ends.append(len(self._labels))
            self._answers.append(_hash(array("i", labels).tobytes()))

    @property
    def hashes(self) -> npt.NDArray[np.uint64]:
        """(rows,) of the normalised texts, uniformly distributed."""
        return np.frombuffer(self._hashes, np.uint64)

    @property
    def splits(self) -> npt.NDArray[np.int8]:
        """(rows,) the split whose file each row is from."""
        return np.frombuffer(self._splits, np.int8)

    @property
    def labels(self) -> npt.NDArray[np.int32]:
        """(labels of all rows,)."""
        return np.frombuffer(self._labels, np.int32)

    @property
    def ends(self) -> npt.NDArray[np.int64]:
        """(rows,) where the labels of each tagged row end."""
        return np.frombuffer(self._ends, np.int64)

    @property
    def answers(self) -> npt.NDArray[np.uint64]:
        """(rows,) equal for equal labels."""
        if self.tagged:
            return np.frombuffer(self._answers, np.uint64)
        # The number NONE, −1, becomes 0.
        return (self.labels + np.int32(1)).astype(np.uint64)


def _hash(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=8, person=_PERSON).digest(), "big")
