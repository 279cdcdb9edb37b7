"""The bytes of a tar, compressed by gzip or not, read from front to back, counted and hashed."""

import hashlib
import os
import zlib
from typing import IO, Protocol

CHUNK = 2**20
# What is packed is read in small pieces: zlib hands back, and copies, what it had no room to unpack.
_PACKED_CHUNK = 2**16

_GZIP_MAGIC = b"\x1f\x8b"
# Of the header of ten bytes, the flags stand in the fourth. (RFC 1952, 2.3)
_GZIP_HEADER, _FLAGS = 10, 3
_OPTIONAL = {1: "a mark for text", 2: "a checksum of its own", 4: "extra fields", 8: "a file name", 16: "a comment"}
# zlib's own number for "a gzip header and trailer are around it".
_GZIP_WINDOW = 31


class TooLargeError(Exception):
    """More bytes than allowed are in a file, or came out of it."""


class RefusedError(Exception):
    """A file holds what no artifact's tar has, so nothing more of it is read."""


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes, and none only at the end."""


class Bounded:
    """Reads a tar up to a limit, unpacks it if it is packed, and hashes it.

    Args:
        raw: the file, at its beginning.
        limit: how many bytes the tar may have, and how many the file that holds it.

    Raises:
        TooLargeError: if the file has more; `read` raises it too.
        RefusedError: if gzip's header holds more than it must; `read` raises it for what follows the one member.
    """

    def __init__(self, raw: IO[bytes], limit: int) -> None:
        # Empty blocks unpack to nothing, so what is packed has to count as well.
        if os.fstat(raw.fileno()).st_size > limit:
            raise TooLargeError
        packed = raw.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
        raw.seek(0)
        self._stream: _Readable = _OneMember(raw) if packed else raw
        self._left, self._sha256 = limit, hashlib.sha256()

    def read(self, size: int) -> bytes:
        data = self._stream.read(min(size, self._left + 1))
        self._left -= len(data)
        if self._left < 0:
            raise TooLargeError
        self._sha256.update(data)
        return data

    def hexdigest(self) -> str:
        return self._sha256.hexdigest()


class _OneMember:
    """Unpacks the one gzip member that a file holds; another reader may show, or hide, what any more of them hold."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw, self._unpack = raw, zlib.decompressobj(_GZIP_WINDOW)
        header = raw.read(_GZIP_HEADER)
        raw.seek(0)
        flags = header[_FLAGS] if len(header) == _GZIP_HEADER else 0
        held = [what for bit, what in _OPTIONAL.items() if flags & bit]
        if held:
            raise RefusedError(
                f"its gzip header holds {' and '.join(held)}, which ferry package never writes. "
                "Pack the tar again with gzip -n."
            )

    def read(self, size: int, /) -> bytes:
        while not self._unpack.eof:
            packed = self._unpack.unconsumed_tail or self._raw.read(_PACKED_CHUNK)
            if not packed:
                raise EOFError("it is cut off")
            data = self._unpack.decompress(packed, size)
            if data:
                return data
        if self._unpack.unused_data or self._raw.read(1):
            raise RefusedError(
                "more follows after the end of what gzip packed; ferry package writes one gzip member. "
                "Unpack it, and pack the tar again with gzip -n."
            )
        return b""
