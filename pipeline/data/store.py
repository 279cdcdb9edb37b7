"""Many texts on disk, read like a list; in memory are 8 bytes a text, and 8 bytes a row of a view."""

import mmap
import tempfile
from abc import abstractmethod
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, Self, TypeVar, overload

import numpy as np
import numpy.typing as npt

T = TypeVar("T")


class View(Sequence[T], Generic[T]):
    """Chosen rows of something stored; a slice is a view of the same store, a loop reads row after row."""

    def __init__(self, rows: npt.NDArray[np.int64]) -> None:
        """Choose rows; rows (n,) are numbers of what is stored."""
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[T]:
        for row in self._rows:
            yield self._read(int(row))

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> "View[T]": ...

    def __getitem__(self, index: int | slice) -> "T | View[T]":
        if isinstance(index, slice):
            return self._chosen(self._rows[index])
        return self._read(int(self._rows[index]))

    @abstractmethod
    def _chosen(self, rows: npt.NDArray[np.int64]) -> "View[T]":
        """View other rows of the same store."""

    @abstractmethod
    def _read(self, row: int) -> T:
        """Read what is stored under a number."""


class Texts(View[str]):
    """Texts of a file that TextWriter wrote; the file must stay where it is."""

    def __init__(self, data: mmap.mmap | bytes, ends: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]) -> None:
        """View rows of `data`, UTF-8, where text i ends at byte ends[i] and starts where the one before ends."""
        super().__init__(rows)
        self._data = data
        self._ends = ends

    def choose(self, rows: npt.NDArray[np.int64]) -> "Texts":
        """View other rows of the same store."""
        return Texts(self._data, self._ends, rows)

    def _chosen(self, rows: npt.NDArray[np.int64]) -> "Texts":
        return self.choose(rows)

    def _read(self, row: int) -> str:
        return self.read(row)

    def read(self, row: int) -> str:
        """Return a text by its number in the store."""
        start = int(self._ends[row - 1]) if row else 0
        return self._data[start : int(self._ends[row])].decode("utf-8")


class Sentences(View[list[str]]):
    """Texts cut into words at single spaces, which no word holds."""

    def __init__(self, texts: Texts, rows: npt.NDArray[np.int64]) -> None:
        """View rows of a store whose texts are words with one space between."""
        super().__init__(rows)
        self._texts = texts

    def _chosen(self, rows: npt.NDArray[np.int64]) -> "Sentences":
        return Sentences(self._texts, rows)

    def _read(self, row: int) -> list[str]:
        return self._texts.read(row).split(" ")


class Ragged(View[npt.NDArray[np.int64]]):
    """Rows of integers of different lengths, in one array."""

    def __init__(self, values: npt.NDArray[Any], ends: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]) -> None:
        """View rows of `values`, where row i ends at ends[i] and starts where the one before ends."""
        super().__init__(rows)
        self._values = values
        self._ends = ends

    def _chosen(self, rows: npt.NDArray[np.int64]) -> "Ragged":
        return Ragged(self._values, self._ends, rows)

    def _read(self, row: int) -> npt.NDArray[np.int64]:
        start = int(self._ends[row - 1]) if row else 0
        return self._values[start : int(self._ends[row])].astype(np.int64)


class TextWriter:
    """Writes texts one behind the other into a new file, which goes if the block that is entered fails."""

    def __init__(self, folder: Path) -> None:
        """Start a new file, beside any others in the folder."""
        descriptor, name = tempfile.mkstemp(prefix="texts-", suffix=".utf8", dir=folder)
        self._path = Path(name)
        self._file = open(descriptor, "wb")  # noqa: SIM115  (closed by the block)
        self._ends = array("q")
        self._end = 0

    def add(self, text: str) -> None:
        self._end += self._file.write(text.encode("utf-8"))
        self._ends.append(self._end)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._file.close()
        if kind is not None:
            self._path.unlink(missing_ok=True)

    def texts(self) -> Texts:
        """Finish the file, and view all of it."""
        self._file.close()
        data: mmap.mmap | bytes = b""
        if self._end:
            with self._path.open("rb") as file:
                data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        ends = np.frombuffer(self._ends, np.int64) if self._ends else np.zeros(0, np.int64)
        return Texts(data, ends, np.arange(len(ends)))
