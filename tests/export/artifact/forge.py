"""Artifacts changed as one who recomputes every hash changes them, and tars of every kind."""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import onnx

TOP = "small-1.0.0"


def rebind(folder: Path) -> None:
    """Write every hash anew: in verification.json, in the manifest and in SHA256SUMS."""
    verification = json.loads((folder / "verification.json").read_text())
    files = verification["inputs"]["files"]
    files.update({name: sha256(folder / name) for name in files})
    (folder / "verification.json").write_text(json.dumps(verification))
    manifest = json.loads((folder / "manifest.json").read_text())
    for name, entry in manifest["files"].items():
        entry.update(sha256=sha256(folder / name), bytes=(folder / name).stat().st_size)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    names = sorted(path.name for path in folder.iterdir() if path.name != "SHA256SUMS")
    (folder / "SHA256SUMS").write_text("".join(f"{sha256(folder / name)}  {name}\n" for name in names))


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def change_json(folder: Path, name: str, change: Callable[[Any], Any]) -> None:
    document = json.loads((folder / name).read_text())
    change(document)
    (folder / name).write_text(json.dumps(document))
    rebind(folder)


def change_onnx_weight(folder: Path, factor: float) -> None:
    """Multiply the first number of the classifier's last weight in model.onnx."""
    model = onnx.load(folder / "model.onnx")
    tensor = max((t for t in model.graph.initializer if t.name.startswith("head")), key=lambda t: t.name)
    values = onnx.numpy_helper.to_array(tensor).copy()
    values.flat[0] *= factor
    tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    onnx.save(model, folder / "model.onnx")
    rebind(folder)


def member(name: str, data: bytes = b"", **fields: Any) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, data


def members_of(folder: Path) -> list[tuple[tarfile.TarInfo, bytes]]:
    """The files of a folder, as `ferry package` puts them into a tar, but for times and owners."""
    files = sorted(folder.iterdir())
    return [member(f"{TOP}/{file.name}", file.read_bytes()) for file in files]


def write_tar(file: Path, members: Iterable[tuple[tarfile.TarInfo, bytes]], *, packed: bool = True) -> Path:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))
    file.write_bytes(gzip.compress(buffer.getvalue()) if packed else buffer.getvalue())
    return file
