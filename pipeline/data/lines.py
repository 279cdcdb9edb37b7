"""The physical lines of a text file, decoded one at a time; memory is that of the longest line.

A line ends with LF, CR LF or CR. Text is UTF-8; a byte order mark at the start is dropped. A file whose name ends in
`.gz` is unpacked as it is read.
"""

import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple, cast

from export.contract import decode_text

# A cell of tables.MAX_CELL_CHARACTERS fits, even if JSON spells each character in six bytes.
MAX_LINE_BYTES = 16 << 20
_CHUNK_BYTES = 1 << 20

_UTF8_MARK = b"\xef\xbb\xbf"
# UTF-32 first: its little-endian mark starts with that of UTF-16.
_OTHER_MARKS = {
    b"\xff\xfe\0\0": "UTF-32",
    b"\0\0\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}


class Line(NamedTuple):
    """A line with its end; `problem` says why it can't be used, and is empty if it can."""

    number: int
    text: str
    problem: str = ""


@dataclass(frozen=True)
class BadRow:
    """A row that can't be used: where it starts, counted from 1, and why."""

    file: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}: {self.reason}"


def read_lines(path: Path) -> Iterator[Line]:
    """Yield every line; one that is not UTF-8, or over MAX_LINE_BYTES, has a problem and other text.

    Raises:
        ValueError: if the file can't be read, is damaged, or is UTF-16 or UTF-32.
    """
    try:
        with open_bytes(path) as file:
            for number, (raw, whole) in enumerate(_split(file, path), start=1):
                yield _decode(number, raw, whole)
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(path, error) from None


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file for reading, unpacked if its name ends in `.gz`."""
    if path.suffix.lower() == ".gz":
        return cast(IO[bytes], gzip.open(path, "rb"))
    return path.open("rb")


def mark_notes(path: Path) -> list[str]:
    """Say that the text starts with the byte order mark that UTF-8 doesn't need, if it does.

    Raises:
        ValueError: if the file can't be read.
    """
    try:
        with open_bytes(path) as file:
            marked = file.read(len(_UTF8_MARK)) == _UTF8_MARK
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(path, error) from None
    return [f"{path.name}: a byte order mark at the start was dropped."] if marked else []


def file_stamp(path: Path) -> tuple[int, int, int]:
    """Return a file's size in bytes, its time of change in nanoseconds and its inode: another stamp, another file.

    Raises:
        ValueError: if the file can't be looked at.
    """
    try:
        stat = path.stat()
    except OSError as error:
        raise _unreadable(path, error) from None
    return stat.st_size, stat.st_mtime_ns, stat.st_ino


def file_problem(path: Path) -> str:
    """Say why a path is no regular file, as the end of a sentence; empty if it is one. Reading a pipe may never end."""
    try:
        if path.is_file():
            return ""
        return "is no file" if path.exists() else "does not exist"
    except OSError as error:
        return f"can't be read: {error.strerror}"


def reason_of(error: Exception) -> str:
    """Return an error's own words on one line without a full stop, for a sentence that has its own."""
    words = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return " ".join(words.split()).rstrip(" .")


def _unreadable(path: Path, error: Exception) -> ValueError:
    return ValueError(f"{path} can't be read: {reason_of(error)}.")


def _split(file: IO[bytes], path: Path) -> Iterator[tuple[bytes, bool]]:
    """Yield each line, and whether it is whole; a longer one than MAX_LINE_BYTES is not kept."""
    pending, whole = file.read(_CHUNK_BYTES), True
    other = next((name for mark, name in _OTHER_MARKS.items() if pending.startswith(mark)), None)
    if other is not None:
        raise ValueError(
            f"{path} must be UTF-8; it begins like {other}. Convert it, with `iconv -f {other} -t UTF-8` for example."
        )
    pending = pending.removeprefix(_UTF8_MARK)
    while chunk := file.read(_CHUNK_BYTES):
        # The last line may go on, and a CR at its end may be half of a CR LF.
        *lines, pending = (pending + chunk).splitlines(keepends=True)
        for line in lines:
            yield line, whole
            whole = True
        if len(pending) > MAX_LINE_BYTES:
            pending, whole = pending[-1:], False
    for line in pending.splitlines(keepends=True):
        yield line, whole
        whole = True


def _decode(number: int, raw: bytes, whole: bool) -> Line:
    if not whole:
        return Line(number, "\n", f"the line is longer than {MAX_LINE_BYTES >> 20} MiB. Is a line end missing?")
    try:
        return Line(number, decode_text(raw))
    except ValueError as error:
        return Line(number, raw.decode("utf-8", "replace"), str(error))
