"""The files of an artifact, from its folder or its tar. Nothing is unpacked to the disk, and no link is followed.

A folder is read file by file, when a file is asked for. A tar is read once, from front to back, into memory: only the
files that an artifact has, and never more than the limit. Hard links in a folder are files like others.
"""

import errno
import os
import stat
import tarfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from export.artifact.archive import tar_digest
from export.artifact.layout import ALL_FILES, KNOWN_FILES, ArtifactError
from export.artifact.limits import MAX_SIZE, limit_of, shown, size_problems, too_large
from export.artifact.streams import Bounded, RefusedError, TooLargeError
from export.artifact.tar import OVERHEAD, TarReader
from export.files import read_regular_file

_TAR_ERRORS = (tarfile.TarError, zlib.error, EOFError, ValueError)


@dataclass(frozen=True, kw_only=True)
class Source:
    """An opened folder or tar.

    `names` holds every name in it; `problems` says what no artifact has: links, devices, folders, names that lead
    elsewhere, names that stand twice, more bytes than allowed. `read` gives a file's bytes or raises ArtifactError.
    `top` is the folder that a tar holds, None for a folder.
    """

    path: Path
    names: frozenset[str]
    problems: tuple[str, ...]
    read: Callable[[str], bytes]
    top: str | None


def open_source(path: Path, max_size: int = MAX_SIZE) -> Source:
    """Open an artifact's folder or its tar, compressed by gzip or not.

    Args:
        path: the folder or the tar.
        max_size: how many bytes all files together may have; a file that is no model has a lower limit of its own.

    Raises:
        ArtifactError: if it is neither, or the tar is damaged.
    """
    if path.is_dir():
        return _open_folder(path, max_size)
    if path.is_file():
        return _open_tar(path, max_size)
    raise ArtifactError(
        [f"{path} is neither a folder nor a tar. Give artifacts/<name>/<version> or its <name>-<version>.tar.gz."]
    )


def _open_folder(folder: Path, max_size: int) -> Source:
    names, problems, total = set(), [], 0
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        names.add(entry.name)
        status = entry.stat(follow_symlinks=False)
        if not stat.S_ISREG(status.st_mode):
            problems.append(f"{shown(entry.name)} is {_kind_of_mode(status.st_mode)}; an artifact holds files only.")
            continue
        total += status.st_size
        problems += size_problems(entry.name, status.st_size, max_size)
    if total > max_size:
        problems.append(too_large(max_size))
    return Source(
        path=folder,
        names=frozenset(names),
        problems=tuple(problems),
        read=lambda name: _read_file(folder, name, limit_of(name, max_size)),
        top=None,
    )


def _read_file(folder: Path, name: str, limit: int) -> bytes:
    try:
        data = read_regular_file(folder / name, limit, follow=False)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP, errno.EINVAL):
            raise ArtifactError([f"{name} is missing from {folder}, or is no file."]) from None
        raise ArtifactError([f"{name} can't be read: {error.strerror}."]) from None
    if len(data) > limit:
        raise ArtifactError(size_problems(name, len(data), limit))
    return data


def _open_tar(path: Path, max_size: int) -> Source:
    reader, digest = TarReader(max_size), None
    try:
        with path.open("rb") as raw:
            stream = Bounded(raw, max_size + OVERHEAD)
            reader.read(stream)
            digest = stream.hexdigest()
    except TooLargeError:
        reader.problems.append(too_large(max_size))
    except RefusedError as error:
        reader.problems.append(str(error))
    except _TAR_ERRORS as error:
        raise ArtifactError(
            [f"{path} is not a folder and not a tar, or it is damaged ({error}). Fetch it again."]
        ) from None
    top, contents = reader.top or "", reader.contents
    complete = not reader.problems and set(ALL_FILES) <= reader.names <= set(KNOWN_FILES)
    if complete and digest != tar_digest(top, contents):
        # Two readers may read one unusual tar in two ways; of this one there is a single reading.
        reader.problems.append(
            "it is not the tar that ferry package writes of these files: their order, owners, times or modes differ, "
            "or it holds more than them. Unpack it where that does no harm, and check the folder."
        )

    def read(name: str) -> bytes:
        if name not in contents:
            raise ArtifactError([f"{name} is missing from {path}, or is no file."])
        return contents[name]

    return Source(path=path, names=frozenset(reader.names), problems=tuple(reader.problems), read=read, top=top)


def _kind_of_mode(mode: int) -> str:
    for is_kind, kind in ((stat.S_ISLNK, "a symbolic link"), (stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a pipe")):
        if is_kind(mode):
            return kind
    return "a device or a socket"
