"""Files that are either whole or absent: hashes, canonical JSON, and folders that appear in one rename."""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


def sha256_bytes(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def dump_json(value: object) -> str:
    """JSON for people and diffs: sorted keys, two spaces, ASCII, a final newline; NaN and infinity are refused."""
    return json.dumps(value, sort_keys=True, indent=2, ensure_ascii=True, allow_nan=False) + "\n"


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
    a process killed between them leaves the old folder beside `target`, in a hidden folder.

    Args:
        target: the folder that is to appear; the folders above it are made.
        replace: whether an existing `target` is replaced, after the new one is complete.
        record: the file that a folder must hold to be replaced; an empty folder may be replaced too.

    Raises:
        FileExistsError: if `target` exists and may not be replaced, before the block runs or after it.
    """
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
                _flush(path)
        if replace and target.exists():
            target.rename(old)
        else:
            _refuse_existing(target)
        new.rename(target)
        _flush(target.parent)
    except BaseException:
        if old.exists() and not target.exists():
            old.rename(target)
        raise
    finally:
        if target.exists() or not old.exists():
            shutil.rmtree(hidden, ignore_errors=True)
        for folder in made:
            # Only empty folders go, and only those made above.
            with suppress(OSError):
                folder.rmdir()


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


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
