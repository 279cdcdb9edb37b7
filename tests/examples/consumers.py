"""The two consumers as their users run them, and artifacts changed in the ways that they must refuse."""

import hashlib
import json
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import onnx
import torch

ROOT = Path(__file__).parents[2]
# A consumer that hangs, as the C++ one does when Torch is linked before SentencePiece, fails instead of waiting.
TIMEOUT_SECONDS = 120


class Result(NamedTuple):
    """What a command answered."""

    code: int
    out: str
    err: str


@dataclass(frozen=True, kw_only=True)
class Consumer:
    """One of the programs: how it is started, the model that it loads and the runtime that it loads it with."""

    name: str
    command: list[str]
    model: str
    runtime: str

    def run(self, *arguments: object, stdin: bytes = b"") -> Result:
        command = [*self.command, *(a if isinstance(a, bytes) else str(a) for a in arguments)]
        done = subprocess.run(command, input=stdin, capture_output=True, timeout=TIMEOUT_SECONDS, check=False)
        return Result(done.returncode, done.stdout.decode(), done.stderr.decode())

    @contextmanager
    def started(self, artifact: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        """Start the program on standard input; if it hangs it is ended, and its output with it."""
        pipe = subprocess.PIPE
        command = [*self.command, str(artifact), *arguments]
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
            timer = threading.Timer(TIMEOUT_SECONDS, process.kill)
            timer.start()
            try:
                yield process
            finally:
                timer.cancel()
                process.kill()

    def refuses(self, artifact: Path, *arguments: object) -> str:
        """Run the program, see that it refuses in one sentence and answers nothing, and return the sentence."""
        result = self.run(artifact, *(arguments or ("MIT licence",)))
        assert (result.code, result.out) == (1, ""), result
        assert result.err.startswith("classify: "), result
        assert result.err.count("\n") == 1, result
        return result.err.removeprefix("classify: ").rstrip("\n")


def read_json(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


def copy_artifact(artifact: Path, folder: Path) -> Path:
    return Path(shutil.copytree(artifact, folder / "artifact"))


def flip(path: Path, position: float) -> None:
    """Change one byte, at a position from 0 (the first) to 1 (the last)."""
    data = bytearray(path.read_bytes())
    data[round(position * (len(data) - 1))] ^= 1
    path.write_bytes(data)


def write_manifest(artifact: Path, manifest: Any) -> None:
    """Write the manifest, and the SHA256SUMS that follows from it."""
    data = json.dumps(manifest).encode()
    (artifact / "manifest.json").write_bytes(data)
    hashes = {name: entry["sha256"] for name, entry in manifest["files"].items()}
    hashes["manifest.json"] = hashlib.sha256(data).hexdigest()
    (artifact / "SHA256SUMS").write_text("".join(f"{hashes[name]}  {name}\n" for name in sorted(hashes)), "utf-8")


def change_manifest(artifact: Path, change: Callable[[Any], None]) -> None:
    manifest = read_json(artifact / "manifest.json")
    change(manifest)
    write_manifest(artifact, manifest)


def reseal(artifact: Path) -> None:
    """Write the hashes of the files as they are now, as one who forges an artifact does."""

    def change(manifest: Any) -> None:
        for name, entry in manifest["files"].items():
            data = (artifact / name).read_bytes()
            entry.update(sha256=hashlib.sha256(data).hexdigest(), bytes=len(data))

    change_manifest(artifact, change)


def change_goldens(artifact: Path, change: Callable[[Any], None]) -> None:
    goldens = read_json(artifact / "goldens.json")
    change(goldens)
    (artifact / "goldens.json").write_text(json.dumps(goldens), "utf-8")
    reseal(artifact)


def change_metadata(artifact: Path, change: Callable[[Any], None]) -> None:
    """Change the metadata in the manifest and in both models, and every hash that follows."""
    metadata = read_json(artifact / "manifest.json")["metadata"]
    change(metadata)
    write_metadata(artifact, metadata)
    change_manifest(artifact, lambda manifest: manifest.update(metadata=metadata))
    reseal(artifact)


def write_metadata(artifact: Path, metadata: Any) -> None:
    """Replace the metadata inside both model files; None removes it."""
    model = onnx.load(artifact / "model.onnx")
    del model.metadata_props[:]
    if metadata is not None:
        onnx.helper.set_model_props(model, {"ferry": json.dumps(metadata)})
    onnx.save(model, artifact / "model.onnx")
    extra_files = {} if metadata is None else {"ferry.json": json.dumps(metadata)}
    script = torch.jit.load(artifact / "model.pt")
    torch.jit.save(script, artifact / "model.pt", _extra_files=extra_files)


def spoil_weights(artifact: Path) -> None:
    """Make every float weight of both models NaN."""
    model = onnx.load(artifact / "model.onnx")
    for tensor in model.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            array = onnx.numpy_helper.to_array(tensor).copy()
            array.fill(float("nan"))
            tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
    onnx.save(model, artifact / "model.onnx")
    metadata = {"ferry.json": ""}
    script = torch.jit.load(artifact / "model.pt", _extra_files=metadata)
    with torch.no_grad():
        for parameter in script.parameters():
            parameter.fill_(float("nan"))
    torch.jit.save(script, artifact / "model.pt", _extra_files=metadata)
