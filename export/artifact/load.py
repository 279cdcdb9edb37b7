"""Opening an artifact as every consumer must: bytes are hashed, compared, and then those very bytes are used."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import numpy.typing as npt

from export.artifact.layout import (
    GOLDENS_FILE,
    MANIFEST_FILE,
    SUMS_FILE,
    ArtifactError,
    sums_text,
)
from export.contract import TOKENIZER_FILE, Limits, check_inputs
from export.files import read_json, sha256_bytes
from export.proof.graph_checks import Files
from export.proof.runtimes import Runtime, open_runtime
from export.tokenizer import Tokenizer, pad_batch

# The ways to run an artifact, by the names that a person chooses from: the backend of the proof, and the metadata that
# its model file carries.
RUNTIMES: dict[str, tuple[str, Callable[[Files], dict[str, Any]]]] = {
    "onnxruntime": ("onnxruntime-cpu-all", lambda files: files.onnx_metadata),
    "torchscript": ("torchscript", lambda files: files.torchscript_metadata),
}

_SCHEMA_FILE = Path(__file__).with_name("manifest.schema.json")


@cache
def manifest_validator() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(read_json(_SCHEMA_FILE))


@dataclass(frozen=True)
class Artifact:
    """An artifact whose manifest is sound; `read` gives the bytes of a file after comparing their hash."""

    folder: Path
    manifest: dict[str, Any]

    @property
    def metadata(self) -> dict[str, Any]:
        metadata: dict[str, Any] = self.manifest["metadata"]
        return metadata

    @property
    def labels(self) -> list[str]:
        labels: list[str] = self.metadata["labels"]
        return labels

    @property
    def limits(self) -> Limits:
        limits = self.metadata["limits"]
        return Limits(max_length=limits["sequence_length"]["max"], vocab_size=limits["input_ids"]["max"] + 1)

    def read(self, name: str) -> bytes:
        """Return the bytes of a file.

        Raises:
            ArtifactError: if the file is missing or its bytes are not those of the manifest.
        """
        data = _read_file(self.folder, name)
        if sha256_bytes(data) != self.manifest["files"][name]["sha256"]:
            raise ArtifactError([f"{name} is not the file that {MANIFEST_FILE} describes: its SHA-256 differs."])
        return data

    def goldens(self) -> dict[str, Any]:
        goldens: dict[str, Any] = json.loads(self.read(GOLDENS_FILE))
        return goldens

    def tokenizer(self) -> Tokenizer:
        return Tokenizer(self.read(TOKENIZER_FILE), max_length=self.limits.max_length)


def open_artifact(folder: Path) -> Artifact:
    """Open an artifact: its manifest is read, compared with SHA256SUMS byte for byte, and with the published schema.

    Raises:
        ArtifactError: says what is missing or wrong.
    """
    if not folder.is_dir():
        raise ArtifactError([f"{folder} is not a folder. Give the folder artifacts/<name>/<version>."])
    raw = _read_file(folder, MANIFEST_FILE)
    try:
        manifest = json.loads(raw)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ArtifactError([f"{MANIFEST_FILE} is not valid JSON: {error}."]) from None
    errors = sorted(manifest_validator().iter_errors(manifest), key=lambda error: list(map(str, error.absolute_path)))
    if errors:
        raise ArtifactError([f"{MANIFEST_FILE}: {error.json_path}: {_shorten(error.message)}" for error in errors])
    hashes = {name: entry["sha256"] for name, entry in manifest["files"].items()}
    hashes[MANIFEST_FILE] = sha256_bytes(raw)
    if _read_file(folder, SUMS_FILE) != sums_text(hashes).encode():
        raise ArtifactError(
            [f"{SUMS_FILE} is not the list that follows from {MANIFEST_FILE}: one of them was changed."]
        )
    return Artifact(folder, manifest)


@dataclass(frozen=True)
class Prediction:
    """An answer: `probability` is that of `label`; `dropped` counts the pieces that the length limit cut off."""

    label: str
    probability: float
    dropped: int


class Classifier:
    """Raw text in, label out, from one of an artifact's two models."""

    def __init__(self, artifact: Artifact, runtime: str) -> None:
        """Open the model that a runtime, a key of RUNTIMES, reads.

        Raises:
            ArtifactError: if a file was changed, or the model's metadata is not the manifest's.
        """
        self.artifact = artifact
        self.tokenizer = artifact.tokenizer()
        backend, read_metadata = RUNTIMES[runtime]
        try:
            metadata = read_metadata(Files(artifact.read))
        except ValueError as error:
            raise ArtifactError([str(error)]) from None
        if metadata != artifact.metadata:
            raise ArtifactError([f"the metadata in the {runtime} model is not that of {MANIFEST_FILE}."])
        self.runtime: Runtime = open_runtime(backend, artifact.read)

    def logits(self, input_ids: npt.NDArray[np.int64], attention_mask: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """Return (batch, labels) logits for (batch, sequence) int64 inputs; ValueError if they break the contract."""
        check_inputs(input_ids, attention_mask, self.artifact.limits)
        return self.runtime.run(input_ids, attention_mask)

    def predict(self, texts: list[str]) -> list[Prediction]:
        """Classify one batch of texts; raises ValueError for a text that is not valid Unicode."""
        if not texts:
            return []
        encodings = self.tokenizer.encode_batch(texts)
        probabilities = softmax(self.logits(*pad_batch(encodings)))
        best = probabilities.argmax(axis=1)
        return [
            Prediction(self.artifact.labels[index], float(row[index]), encoding.dropped)
            for index, row, encoding in zip(best, probabilities, encodings, strict=True)
        ]


def softmax(logits: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return the probabilities of each row, in float64."""
    shifted = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    probabilities: npt.NDArray[np.float64] = shifted / shifted.sum(axis=1, keepdims=True)
    return probabilities


def _read_file(folder: Path, name: str) -> bytes:
    path = folder / name
    if not path.is_file():
        raise ArtifactError([f"{name} is missing from {folder}, or is no file."])
    try:
        return path.read_bytes()
    except OSError as error:
        raise ArtifactError([f"{name} can't be read: {error.strerror}."]) from None


def _shorten(message: str) -> str:
    return message if len(message) <= 200 else message[:200] + " …"
