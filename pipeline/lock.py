"""One process at a time in a run folder: a lock that the kernel lets go when its holder dies, however it dies.

Needs `flock`, which Linux and macOS have on local file systems and on most network ones.
"""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from export.errors import FerryError

LOCK_FILE = ".lock"

# What flock says where a file system knows no locks.
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}


class LockedError(FerryError):
    """Another process, `holder` in words, works in the folder."""

    def __init__(self, message: str, *, holder: str) -> None:
        super().__init__(message)
        self.holder = holder


@contextmanager
def locked(run: Path) -> Iterator[None]:
    """Hold RUN/.lock while the block runs; the folder is made if need be, and goes again if it stays empty.

    Raises:
        LockedError: at once, if another process holds the lock; names its process id.
        ValueError: if `run` is no folder.
        FerryError: if the folder can't be written, or its file system has no locks.
    """
    # The block may change the working directory.
    folder = run.absolute()
    made = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    if os.path.lexists(folder) and not folder.is_dir():
        raise ValueError(f"{run} must be a folder; it is something else. Name another with --run.")
    try:
        descriptor = _acquire(folder / LOCK_FILE, run)
    except OSError as error:
        raise FerryError(
            f"the run folder {run} can't be written: {error.strerror}. Mend that, or name another folder with --run."
        ) from error
    try:
        yield
    finally:
        # Unlinked before it is let go: whoever waits at the old file sees that it is no longer the one at the path.
        with suppress(OSError):
            (folder / LOCK_FILE).unlink()
        os.close(descriptor)
        for parent in made:
            # Only empty folders go, and only those made above.
            with suppress(OSError):
                parent.rmdir()


def _acquire(file: Path, run: Path) -> int:
    """Return a descriptor that holds the lock of the file that is at the path, and not of one that was there."""
    while True:
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
        except FileNotFoundError:
            # Its holder has just left, and taken the empty folder along.
            continue
        try:
            _lock(descriptor, run)
            if _is_at(file, descriptor):
                os.ftruncate(descriptor, 0)
                os.write(descriptor, f"{os.getpid()}\n".encode())
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _lock(descriptor: int, run: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
        who = f"process {holder}" if holder.isdecimal() else "another process"
        raise LockedError(
            f"{who} is working in {run}. Wait until it has ended, or name another folder with --run.", holder=who
        ) from None
    except OSError as error:
        if error.errno in _NO_LOCKS:
            raise FerryError(
                f"the file system of {run} has no file locks (flock: {error.strerror}), without which two processes "
                "could spoil each other's work. Put the run on a local file system."
            ) from error
        raise


def _is_at(file: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(file), os.fstat(descriptor))
    except FileNotFoundError:
        return False
