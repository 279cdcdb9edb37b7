"""Files that are either whole or absent: hashes, canonical JSON, and folders that appear in one rename."""

import errno
import hashlib
import json
import math
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

# How deeply JSON may be nested; Ferry's own has five levels, and what compares documents recurses.
MOST_NESTED = 32

_HALF_PAIR = re.compile("[\ud800-\udfff]")

# What may stand in a hidden folder beside the new folder and the old one.
SCRATCH = "scratch"

# What a write says where there is no room.
DISK_FULL = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT}

# What a rename says where the target has appeared meanwhile.
_OCCUPIED = {errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR}


def sha256_bytes(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def dump_json(value: object) -> str:
    """JSON for people and diffs: sorted keys, two spaces, ASCII, a final newline; NaN and infinity are refused."""
    return json.dumps(value, sort_keys=True, indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def parse_json(data: bytes) -> Any:
    """Parse JSON that every reader reads alike.

    That is UTF-8 without a mark, whole numbers of 64 bits, others that are finite in float64, no half of a surrogate
    pair, no key twice in an object, and at most MOST_NESTED levels.

    Raises:
        ValueError: says what is wrong.
    """
    try:
        document = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_each_key_once,
            parse_constant=_refuse_constant,
            parse_float=_finite,
            parse_int=_of_64_bits,
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    _refuse_odd_parts(document)
    return document


def _each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        twice = next(key for place, (key, _) in enumerate(pairs) if key in dict(pairs[:place]))
        raise ValueError(f"the key {twice!a} stands twice in one object")
    return document


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{_shorten(digits)} is beyond what float64 holds")
    return number


def _of_64_bits(digits: str) -> int:
    # The longest of them has 20 characters; Python itself refuses thousands of digits, in words of its own.
    if len(digits) > 20 or not -(2**63) <= int(digits) < 2**63:
        raise ValueError(f"{_shorten(digits)} is beyond what 64 bits hold")
    return int(digits)


def _shorten(digits: str) -> str:
    return digits if len(digits) <= 30 else f"{digits[:30]}…"


def _refuse_odd_parts(document: Any) -> None:
    """Refuse what is nested too deeply, and text that no encoding of Unicode has; level by level, without recursion."""
    level = [document]
    for _ in range(MOST_NESTED + 1):
        for text in level:
            if isinstance(text, str) and _HALF_PAIR.search(text):
                raise ValueError(f"{_shorten(ascii(text))} holds half of a surrogate pair")
        containers = [part for part in level if isinstance(part, (dict, list))]
        if not containers:
            return
        level = [inner for part in containers for inner in _inside(part)]
    raise ValueError("it is nested too deeply")


def _inside(part: dict[str, Any] | list[Any]) -> list[Any]:
    return [*part.keys(), *part.values()] if isinstance(part, dict) else part


def is_same(one: object, other: object) -> bool:
    """Whether two documents are one in JSON: unlike in Python, 1, 1.0 and true are three values, and NaN is one."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def read_regular_file(path: Path, limit: int, *, follow: bool = True) -> bytes:
    """Read a file's first `limit` bytes, and one more, if there is, to tell that it is larger.

    Args:
        path: the file.
        limit: how many bytes it should have at most.
        follow: whether `path` itself may be a symbolic link.

    Raises:
        OSError: if it can't be read; with EINVAL if it is a folder, a pipe or a device, with ELOOP for a link.
    """
    # Without waiting, as one would for the writer of a pipe.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW))
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is a folder, a pipe or a device, and no file")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(limit + 1)
    finally:
        os.close(descriptor)


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        ValueError: if the file is missing, can't be read or is not JSON; the message names the file.
    """
    try:
        return json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{path} is missing.") from None
    except OSError as error:
        raise ValueError(f"{path} can't be read: {error.strerror}.") from None
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{path} is not valid JSON: {error}.") from None


@contextmanager
def new_folder(target: Path, *, replace: bool, record: str | None = None) -> Iterator[Path]:
    """Yield a temporary folder beside `target` that becomes `target` in one rename if the block succeeds.

    If it fails, or is interrupted, `target` is as it was before and nothing else is left. Replacing takes two renames:
    a process killed between them leaves the old folder beside `target`, in a hidden folder, from where
    `recover_folder` puts it back. What the block writes to `scratch_of` its folder goes when the block ends.

    Args:
        target: the folder that is to appear; the folders above it are made.
        replace: whether an existing `target` is replaced, after the new one is complete.
        record: the file that a folder must hold to be replaced; an empty folder may be replaced too.

    Raises:
        FileExistsError: if `target` exists and may not be replaced, before the block runs or after it.
        OSError: with `target` as its file name, if something can't be written.
    """
    shown = target
    # The block may change the working directory.
    target = target.absolute()
    if not replace:
        _refuse_existing(target)
    elif os.path.lexists(target):
        _refuse_foreign(target, record)
    made = [folder for folder in target.parents if not folder.exists()]
    target.parent.mkdir(parents=True, exist_ok=True)
    hidden = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    new, old = hidden / "new", hidden / "old"
    try:
        # Unlike the hidden folder, this one has the permissions that the user's umask gives.
        new.mkdir()
        yield new
        for path in (*new.rglob("*"), new):
            if not path.is_symlink():
                flush_to_disk(path)
        if replace and target.exists():
            target.rename(old)
        else:
            _refuse_existing(target)
        try:
            new.rename(target)
        except OSError as error:
            # Another process was faster.
            if error.errno in _OCCUPIED:
                _refuse_existing(target)
            raise
        flush_to_disk(target.parent)
    except BaseException as error:
        if old.exists() and not target.exists():
            old.rename(target)
        if isinstance(error, OSError) and error.errno is not None and _is_inside(error.filename, hidden):
            error.filename, error.filename2 = str(shown), None
        raise
    finally:
        if target.exists() or not old.exists():
            shutil.rmtree(hidden, ignore_errors=True)
        _remove_empty(made)


@contextmanager
def new_file(target: Path) -> Iterator[Path]:
    """Yield a temporary path beside `target` that becomes `target` in one rename if the block succeeds.

    The block must write the file. An existing `target` is replaced; if the block fails, it is as it was before, and
    nothing else is left.

    Raises:
        OSError: with `target` as its file name, if something can't be written.
    """
    shown, target = target, target.absolute()
    made = [folder for folder in target.parents if not folder.exists()]
    target.parent.mkdir(parents=True, exist_ok=True)
    hidden = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    new = hidden / "new"
    try:
        yield new
        flush_to_disk(new)
        os.replace(new, target)
        flush_to_disk(target.parent)
    except OSError as error:
        if error.errno is not None and _is_inside(error.filename, hidden):
            error.filename, error.filename2 = str(shown), None
        raise
    finally:
        shutil.rmtree(hidden, ignore_errors=True)
        _remove_empty(made)


def recover_folder(target: Path) -> None:
    """Remove the hidden folders that killed processes left beside `target`, and put back what one of them moved away.

    No process may be inside `new_folder` for this target meanwhile.
    """
    ours = re.compile(rf"\.{re.escape(target.name)}-[a-z0-9_]{{8}}")
    for hidden in sorted(target.parent.glob(f".{target.name}-*")):
        if not ours.fullmatch(hidden.name) or hidden.is_symlink() or not hidden.is_dir():
            continue
        if not {"new", "old", SCRATCH} >= {path.name for path in hidden.iterdir()}:
            continue
        if (hidden / "old").exists() and not os.path.lexists(target):
            (hidden / "old").rename(target)
            flush_to_disk(target.parent)
        shutil.rmtree(hidden)


def scratch_of(new: Path) -> Path:
    """Return a folder on the same disk as the one that `new_folder` yielded, for files that are not to stay."""
    scratch = new.parent / SCRATCH
    scratch.mkdir(exist_ok=True)
    return scratch


def _remove_empty(made: Iterable[Path]) -> None:
    """Remove the folders that a block's writer made, if nothing stands in them; the innermost comes first."""
    for folder in made:
        with suppress(OSError):
            folder.rmdir()


def _is_inside(name: str | bytes | None, folder: Path) -> bool:
    """Whether an error is about a file in `folder`; one of a write that was refused has no name at all."""
    return name is None or Path(os.fsdecode(name)).is_relative_to(folder)


def _refuse_existing(target: Path) -> None:
    if os.path.lexists(target):
        raise FileExistsError(f"{target} exists and is never changed.")


def _refuse_foreign(target: Path, record: str | None) -> None:
    """Refuse to replace what is no folder, or a folder that was not made by whoever writes `record`."""
    own = target.is_dir()
    if own and record is not None:
        own = (target / record).is_file() or not any(target.iterdir())
    if not own:
        raise FileExistsError(f"{target} was not written by Ferry and is never replaced. Choose another folder.")


def flush_to_disk(path: Path) -> None:
    """Return once a file's bytes, or a folder's names, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
