"""The tar of an artifact, `<name>-<version>.tar.gz`: a function of the files, to the byte of what is compressed.

The compressed bytes are one and the same wherever zlib is the same; another release of zlib, or zlib-ng, may find
shorter matches. So archives are compared by what they unpack to.
"""

import gzip
import hashlib
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

# The first day that every archive format can tell: an extracted file of 1970 makes some tools warn.
MTIME = 315532800
# gzip's own default. Weights hardly shrink at any level, and the JSON files are small.
LEVEL = 6
SUFFIX = ".tar.gz"


class Writable(Protocol):
    """What a tar is written to."""

    def write(self, data: bytes, /) -> int:
        """Take bytes and return how many."""


def top_folder(name: str, version: str) -> str:
    """Return the one folder that the tar of an artifact holds, which is also the beginning of the tar's name."""
    return f"{name}-{version}"


def write_archive(file: Path, top: str, contents: Mapping[str, bytes]) -> None:
    """Write the compressed tar of the files, by name, in the folder `top`."""
    with (
        file.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", compresslevel=LEVEL, fileobj=raw, mtime=0) as packed,
    ):
        _write_tar(packed, top, contents)


def tar_digest(top: str, contents: Mapping[str, bytes]) -> str:
    """Return the SHA-256 of the tar that `write_archive` compresses."""
    digest = _Digest()
    _write_tar(digest, top, contents)
    return digest.hexdigest()


def _write_tar(target: Writable, top: str, contents: Mapping[str, bytes]) -> None:
    # A name that ustar has no room for gets a header of its own (pax); all others are plain ustar.
    with tarfile.open(fileobj=target, mode="w|", format=tarfile.PAX_FORMAT) as tar:  # type: ignore[call-overload]
        folder = tarfile.TarInfo(top)
        folder.type, folder.mode, folder.mtime = tarfile.DIRTYPE, 0o755, MTIME
        tar.addfile(folder)
        for name, data in sorted(contents.items()):
            member = tarfile.TarInfo(f"{top}/{name}")
            member.size, member.mode, member.mtime = len(data), 0o644, MTIME
            tar.addfile(member, io.BytesIO(data))


class _Digest:
    def __init__(self) -> None:
        self._sha256 = hashlib.sha256()

    def write(self, data: bytes, /) -> int:
        self._sha256.update(data)
        return len(data)

    def hexdigest(self) -> str:
        return self._sha256.hexdigest()
