"""Standard input as lines that are given out as they arrive, and standard output without a buffer."""

import contextlib
import errno
import os
import sys
from collections.abc import Iterator, Sequence
from typing import TextIO

from ferry_artifact import BATCH_SIZE

CHUNK_BYTES = 65536


def read_batches() -> Iterator[Sequence[bytes]]:
    """Yield the lines of standard input as they arrive, at most `BATCH_SIZE` at a time.

    Lines are never held back until a batch is full, and memory holds no more than a chunk and the line that it ends in.

    Raises:
        OSError: if standard input can't be read.
    """
    begun: list[bytes] = []
    while chunk := _read_chunk():
        *lines, rest = chunk.split(b"\n")
        if lines:
            lines[0] = b"".join(begun) + lines[0]
            begun = []
        begun.append(rest)
        yield from split_batches(lines)
    # A final newline ends a line and begins none.
    if last := b"".join(begun):
        yield [last]


def split_batches(texts: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    for start in range(0, len(texts), BATCH_SIZE):
        yield texts[start : start + BATCH_SIZE]


def write(text: str) -> None:
    """Write to standard output.

    Raises:
        OSError: if it can't be written.
    """
    try:
        _check_open(sys.stdout)
        _write_all(1, text.encode())
    except OSError as error:
        raise OSError(f"standard output can't be written: {error.strerror}.") from None


def complain(sentence: str) -> None:
    """Write a line to standard error; if that can't be written, nobody reads it."""
    with contextlib.suppress(OSError):
        _check_open(sys.stderr)
        # Arguments that are not UTF-8 come out as they went in.
        _write_all(2, os.fsencode(f"{sentence}\n"))


def _read_chunk() -> bytes:
    try:
        _check_open(sys.stdin)
        return os.read(0, CHUNK_BYTES)
    except OSError as error:
        raise OSError(f"standard input can't be read: {error.strerror}.") from None


def _check_open(stream: TextIO | None) -> None:
    """Refuse a stream that was closed when Python started: another file may have taken its number since."""
    if stream is None:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))


def _write_all(stream: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(stream, rest) :]
