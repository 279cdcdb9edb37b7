"""The files of an artifact from its tar, read once, from front to back, into memory.

Every header is looked at before anything it announces is read. Python's own reader does not walk the tar: it follows
headers that stand before a member (long names, pax, sparse files) as deep as they go, however large they are.
"""

import io
import re
import tarfile
from pathlib import PurePosixPath

from export.artifact.layout import ALL_FILES, KNOWN_FILES
from export.artifact.limits import shown, size_problems, too_large
from export.artifact.streams import CHUNK, Bounded

# Headers, padding and the end of a tar, beside its files.
OVERHEAD = 2**20
_MAX_MEMBERS = 100
# A name that ustar has no room for stands in a pax header. The longest have 240 bytes: name, version and file name.
_MAX_PAX_SIZE = 2**10
_PAX_PATH = re.compile(rb"([1-9][0-9]{0,3}) path=([^\n\0]+)\n")

_EXTENSIONS = {
    tarfile.XHDTYPE: "a pax header",
    tarfile.XGLTYPE: "a pax header for all members",
    tarfile.SOLARIS_XHDTYPE: "a pax header of Solaris",
    tarfile.GNUTYPE_LONGNAME: "a GNU header for a long name",
    tarfile.GNUTYPE_LONGLINK: "a GNU header for a long link",
    tarfile.GNUTYPE_SPARSE: "a sparse file",
}


class TarReader:
    """Collects the files of a tar, and what is wrong with its members.

    After `read`, `names` holds every name in its folder `top`, `contents` the files that an artifact has, and
    `problems` what no artifact has.

    Args:
        max_size: how many bytes all files together may have.
    """

    def __init__(self, max_size: int) -> None:
        self.top: str | None = None
        self.names: set[str] = set()
        self.contents: dict[str, bytes] = {}
        self.problems: list[str] = []
        self._max_size, self._total = max_size, 0

    def read(self, stream: Bounded) -> None:
        """Read a tar to its end, or to where there is nothing more to learn from it.

        Raises:
            tarfile.TarError, EOFError, ValueError: if it is damaged or no tar.
        """
        for _ in range(_MAX_MEMBERS):
            member = self._next_member(stream)
            if member is None:
                break
            if not self._take(stream, member):
                return
        else:
            self.problems.append(f"it has more than {_MAX_MEMBERS} members; an artifact has {len(ALL_FILES)}.")
            return
        # What follows the end of the tar counts and is hashed like the rest.
        while stream.read(CHUNK):
            pass

    def _next_member(self, stream: Bounded) -> tarfile.TarInfo | None:
        """Return the next member, None at the end; one of another kind than files' for a header out of place."""
        member = _read_header(stream)
        if member is None or member.type != tarfile.XHDTYPE or not 0 <= member.size <= _MAX_PAX_SIZE:
            return member
        path = _PAX_PATH.fullmatch(_read_data(stream, member.size))
        if path is None or int(path[1]) != member.size:
            return member
        named = _read_header(stream)
        if named is None:
            raise EOFError("a pax header has no member")
        named.name = path[2].decode()
        return named

    def _take(self, stream: Bounded, member: tarfile.TarInfo) -> bool:
        """Look at a member and read it; False if nothing more is to be read."""
        parts = PurePosixPath(member.name).parts
        name = shown(member.name)
        if member.size < 0:
            raise ValueError(f"{name} has fewer than 0 bytes")
        if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE):
            self.problems.append(f"{name} is {_kind(member)}; an artifact holds files only.")
            # These have no data; what follows any other depends on who reads it.
            return member.issym() or member.islnk() or member.isdev()
        if member.name.startswith("/") or ".." in parts or "\\" in member.name:
            self.problems.append(f"{name} leads out of the folder that it is unpacked to.")
            return self._skip(stream, member)
        if self.top is None and parts:
            self.top = parts[0]
        if member.isdir() and parts == (self.top,):
            return self._skip(stream, member)
        if len(parts) != 2 or parts[0] != self.top or not member.isreg():
            self.problems.append(f"{name} is a folder, or lies in another folder than the files of the artifact.")
            return self._skip(stream, member)
        return self._take_file(stream, member, parts[1])

    def _take_file(self, stream: Bounded, member: tarfile.TarInfo, name: str) -> bool:
        if name in self.names:
            self.problems.append(f"{shown(name)} stands in the tar twice.")
            return self._skip(stream, member)
        self.names.add(name)
        self._total += member.size
        problems = size_problems(name, member.size, self._max_size)
        if self._total > self._max_size and not problems:
            problems = [too_large(self._max_size)]
        self.problems += problems
        if problems:
            return False
        if name not in KNOWN_FILES:
            return self._skip(stream, member)
        self.contents[name] = _read_data(stream, member.size)
        return True

    def _skip(self, stream: Bounded, member: tarfile.TarInfo) -> bool:
        # A folder has no data, whatever size its header tells.
        left = _padded(member.size) if member.isreg() else 0
        while left:
            left -= len(_read_exactly(stream, min(left, CHUNK)))
        return True


def _read_header(stream: Bounded) -> tarfile.TarInfo | None:
    """Read one block of a tar as a header; None if it is the block of zeros that ends a tar."""
    try:
        return tarfile.TarInfo.frombuf(_read_exactly(stream, tarfile.BLOCKSIZE), "utf-8", "surrogateescape")
    except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
        return None


def _read_data(stream: Bounded, size: int) -> bytes:
    """Read a member's data, and the padding after it."""
    # In pieces: a header may announce more than there is.
    data = io.BytesIO()
    while data.tell() < size:
        data.write(_read_exactly(stream, min(size - data.tell(), CHUNK)))
    _read_exactly(stream, _padded(size) - size)
    return data.getvalue()


def _read_exactly(stream: Bounded, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = stream.read(size - len(data))
        if not more:
            raise EOFError("it is cut off")
        data += more
    return data


def _padded(size: int) -> int:
    return -(-size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE


def _kind(member: tarfile.TarInfo) -> str:
    if member.issym() or member.islnk():
        return f"a {'symbolic' if member.issym() else 'hard'} link to {shown(member.linkname)}"
    if member.isfifo():
        return "a pipe"
    return "a device" if member.isdev() else _EXTENSIONS.get(member.type, f"a member of the kind {member.type!r}")
