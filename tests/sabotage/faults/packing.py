"""Faults of what holds the files: the folder, the tar, the names."""

import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

from export.artifact.archive import top_folder, write_archive
from tests.sabotage.artifact import Contents, write_folder
from tests.sabotage.faults.fault import Fault

TOP = top_folder("planted", "1.0.0")

Lay = Callable[[Path, Contents], Path]


def _folder(change: Callable[[Path], object]) -> Lay:
    """Lay the files out in a folder and change the folder."""

    def lay(folder: Path, contents: Contents) -> Path:
        write_folder(folder, contents)
        change(folder)
        return folder

    return lay


def _link(folder: Path) -> None:
    outside = folder.parent / "outside"
    (folder / "model.pt").rename(outside)
    (folder / "model.pt").symlink_to(outside)


def _case(folder: Path) -> None:
    (folder / "model.onnx").rename(folder / "Model.onnx")


def _subfolder(folder: Path) -> None:
    (folder / "more").mkdir()


def _pipe(folder: Path) -> None:
    (folder / "goldens.json").unlink()
    os.mkfifo(folder / "goldens.json")


def _remove(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


def _add(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(b"x")


def _tar(change: Callable[[tarfile.TarFile, Contents], object], *, top: str = TOP) -> Lay:
    """Lay the files out in a tar, and let `change` add members."""

    def lay(path: Path, contents: Contents) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.with_name(f"{TOP}.tar.gz")
        with tarfile.open(file, "w:gz") as tar:
            for name, data in sorted(contents.items()):
                _member(tar, f"{top}/{name}", data)
            change(tar, contents)
        return file

    return lay


def _member(tar: tarfile.TarFile, name: str, data: bytes = b"x") -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))


def _special(name: str, kind: bytes, target: str = "") -> Callable[[tarfile.TarFile, Contents], object]:
    def change(tar: tarfile.TarFile, _: Contents) -> None:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, target
        tar.addfile(member)

    return change


def _named(name: str) -> Callable[[tarfile.TarFile, Contents], object]:
    return lambda tar, _: _member(tar, name)


def _second(tar: tarfile.TarFile, contents: Contents) -> None:
    _member(tar, f"{TOP}/model.onnx", contents["model.onnx"] + b"x")


def _genuine_tar(edit: Callable[[bytes], bytes]) -> Lay:
    def lay(path: Path, contents: Contents) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.with_name(f"{TOP}.tar.gz")
        write_archive(file, TOP, contents)
        file.write_bytes(edit(file.read_bytes()))
        return file

    return lay


# Each: its name, the kind, and how the files are laid out.
_ROWS: tuple[tuple[str, str, Lay], ...] = (
    ("folder-link", "symbolic link", _folder(_link)),
    ("folder-case", "file missing", _folder(_case)),
    ("folder-inside", "file too many", _folder(_subfolder)),
    ("folder-pipe", "device or pipe for a file", _folder(_pipe)),
    ("folder-extra", "file too many", _folder(_add("model.onnx.data"))),
    ("folder-hidden", "file too many", _folder(_add(".env"))),
    ("folder-without-goldens", "file missing", _folder(_remove("goldens.json"))),
    ("folder-without-proof", "file missing", _folder(_remove("verification.json"))),
    ("folder-without-sums", "file missing", _folder(_remove("SHA256SUMS"))),
    ("tar-escape", "tar with ../", _tar(_named(f"{TOP}/../../outside"))),
    ("tar-absolute", "tar with ../", _tar(_named("/outside"))),
    ("tar-backslash", "tar with ../", _tar(_named(f"{TOP}\\..\\outside"))),
    ("tar-link", "symbolic link", _tar(_special(f"{TOP}/link", tarfile.SYMTYPE, "/etc/hostname"))),
    ("tar-hard-link", "symbolic link", _tar(_special(f"{TOP}/link", tarfile.LNKTYPE, f"{TOP}/model.pt"))),
    ("tar-device", "device or pipe for a file", _tar(_special(f"{TOP}/null", tarfile.CHRTYPE))),
    ("tar-name-twice", "tar written otherwise", _tar(_second)),
    ("tar-second-folder", "file too many", _tar(_named("other/model.onnx"))),
    ("tar-other-top", "tar written otherwise", _tar(lambda *_: None, top="other-1.0.0")),
    ("tar-rewritten", "tar written otherwise", _tar(lambda *_: None)),
    ("tar-cut-short", "file cut short", _genuine_tar(lambda data: data[: len(data) // 2])),
    ("tar-two-streams", "payload smuggled in", _genuine_tar(lambda data: data + data)),
    ("no-artifact", "file missing", lambda path, _: path),
)

FAULTS = tuple(Fault(id=name, kind=kind, lay=lay, check="names") for name, kind, lay in _ROWS)
