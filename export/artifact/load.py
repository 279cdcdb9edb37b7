"""Opening an artifact as every consumer must: bytes are hashed, compared, and then those very bytes are used."""

import json
import re
from collections.abc import Callable, Iterator
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
from export.artifact.limits import MAX_SIZE
from export.artifact.source import Source, open_source
from export.contract import TEXT_CLASSIFICATION, TOKEN_CLASSIFICATION, TOKENIZER_FILE, Limits, check_inputs
from export.files import is_same, parse_json, read_json, sha256_bytes
from export.proof.checks import Files
from export.proof.runtimes import PT2, Runtime, open_runtime
from export.tokenizer import Tokenizer, WordEncoding, pad_batch

# The ways to run an artifact, by the names that a person chooses from: the backend of the proof, and the metadata that
# its model file carries.
RUNTIMES: dict[str, tuple[str, Callable[[Files], dict[str, Any]]]] = {
    "onnxruntime": ("onnxruntime-cpu-all", lambda files: files.onnx_metadata),
    "torchscript": ("torchscript", lambda files: files.torchscript_metadata),
    "pt2": (PT2, lambda files: files.pt2_metadata),
}

_SCHEMA_FILE = Path(__file__).with_name("manifest.schema.json")


@cache
def manifest_validator() -> jsonschema.Draft202012Validator:
    """Return the validator of the published schema, for which 2.0 is no whole number, as it is none for consumers."""
    strict = jsonschema.validators.extend(
        jsonschema.Draft202012Validator,
        validators={"const": _strict_const, "pattern": _strict_pattern},
        type_checker=jsonschema.Draft202012Validator.TYPE_CHECKER.redefine(
            "integer", lambda _, value: type(value) is int
        ),
    )
    return strict(read_json(_SCHEMA_FILE))


def _strict_const(_: Any, const: object, value: object, __: Any) -> Iterator[jsonschema.ValidationError]:
    # JSON Schema calls 2 and 2.0 equal.
    if not is_same(value, const):
        yield jsonschema.ValidationError(f"{const!r} was expected; got {value!r}")


def _strict_pattern(_: Any, pattern: str, value: object, __: Any) -> Iterator[jsonschema.ValidationError]:
    # Python's $ also stands before a line feed at the end; that of JSON Schema does not.
    if isinstance(value, str) and not re.search(re.sub(r"\$$", r"\\Z", pattern), value):
        yield jsonschema.ValidationError(f"{value!r} does not match {pattern!r}")


@dataclass(frozen=True)
class Artifact:
    """An artifact whose manifest is sound; `read` gives the bytes of a file after comparing their hash."""

    source: Source
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
        data = self.source.read(name)
        if sha256_bytes(data) != self.manifest["files"][name]["sha256"]:
            raise ArtifactError([f"{name} is not the file that {MANIFEST_FILE} describes: its SHA-256 differs."])
        return data

    def goldens(self) -> dict[str, Any]:
        goldens: dict[str, Any] = json.loads(self.read(GOLDENS_FILE))
        return goldens

    def tokenizer(self) -> Tokenizer:
        return Tokenizer(self.read(TOKENIZER_FILE), max_length=self.limits.max_length)


def open_artifact(path: Path, max_size: int = MAX_SIZE) -> Artifact:
    """Open an artifact, its folder or its tar: the manifest is read and compared, other files when they are asked for.

    Raises:
        ArtifactError: says what is missing or wrong.
    """
    source = open_source(path, max_size)
    # Of a folder the files that are used are read and hashed one by one; what else lies there does no harm.
    if source.top is not None and source.problems:
        raise ArtifactError(list(source.problems))
    return Artifact(source, read_manifest(source))


def read_manifest(source: Source) -> dict[str, Any]:
    """Read the manifest, and compare it with SHA256SUMS byte for byte and with the published schema.

    Raises:
        ArtifactError: says what is missing or wrong.
    """
    raw = source.read(MANIFEST_FILE)
    try:
        manifest: dict[str, Any] = parse_json(raw)
    except ValueError as error:
        raise ArtifactError([f"{MANIFEST_FILE} is not valid JSON: {error}."]) from None
    errors = sorted(manifest_validator().iter_errors(manifest), key=lambda error: list(map(str, error.absolute_path)))
    if errors:
        raise ArtifactError([f"{MANIFEST_FILE}: {error.json_path}: {_shorten(error.message)}" for error in errors])
    hashes = {name: entry["sha256"] for name, entry in manifest["files"].items()}
    hashes[MANIFEST_FILE] = sha256_bytes(raw)
    if source.read(SUMS_FILE) != sums_text(hashes).encode():
        raise ArtifactError(
            [f"{SUMS_FILE} is not the list that follows from {MANIFEST_FILE}: one of them was changed."]
        )
    return manifest


@dataclass(frozen=True)
class Prediction:
    """The answer to a text: `label` is None where `probability`, the best one, lies below the threshold.

    `dropped` counts the pieces that the length limit cut off.
    """

    label: str | None
    probability: float
    dropped: int


@dataclass(frozen=True)
class Word:
    """The answer to a word of a text; without label and with probability 0 where the length limit cut the word off."""

    word: str
    label: str | None
    probability: float


@dataclass(frozen=True)
class Tagging:
    """The answer to a text whose words are labelled; `dropped` counts the pieces that the length limit cut off."""

    words: tuple[Word, ...]
    dropped: int


class Model:
    """Raw text in, labels out, from one of an artifact's models."""

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
        if not is_same(metadata, artifact.metadata):
            raise ArtifactError([f"the metadata in the {runtime} model is not that of {MANIFEST_FILE}."])
        self.runtime: Runtime = open_runtime(backend, artifact.read)

    def logits(self, input_ids: npt.NDArray[np.int64], attention_mask: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """Return the logits of (batch, sequence) int64 inputs: (batch, labels), or (batch, sequence, labels).

        Raises:
            ValueError: if the inputs break the contract.
        """
        check_inputs(input_ids, attention_mask, self.artifact.limits)
        return self.runtime.run(input_ids, attention_mask)

    def decide(self, logits: npt.NDArray[Any]) -> list[tuple[str | None, float]]:
        """Turn logits (answers, labels) into each answer's label, None below the threshold, and its probability."""
        metadata = self.artifact.metadata
        return decide(logits, self.artifact.labels, metadata["temperature"], metadata["threshold"])


class Classifier(Model):
    """Raw text in, one label out."""

    def predict(self, texts: list[str]) -> list[Prediction]:
        """Classify one batch of texts; raises ValueError for a text that is not valid Unicode."""
        if not texts:
            return []
        encodings = self.tokenizer.encode_batch(texts)
        answers = self.decide(self.logits(*pad_batch(encodings)))
        return [
            Prediction(label, probability, encoding.dropped)
            for (label, probability), encoding in zip(answers, encodings, strict=True)
        ]


class Tagger(Model):
    """Raw text in, one label for each word out."""

    def predict(self, texts: list[str]) -> list[Tagging]:
        """Label the words of one batch of texts; raises ValueError for a text that is not valid Unicode."""
        if not texts:
            return []
        encodings = [self.tokenizer.encode_words(text) for text in texts]
        logits = self.logits(*pad_batch(encodings))
        return [
            Tagging(tag_words(encoding, self.decide(row[encoding.firsts])), encoding.dropped)
            for row, encoding in zip(logits, encodings, strict=True)
        ]


def tag_words(encoding: WordEncoding, answers: list[tuple[str | None, float]]) -> tuple[Word, ...]:
    """Give each word its answer, and none to the words whose first piece was cut off."""
    unread: list[tuple[str | None, float]] = [(None, 0.0)] * (len(encoding.words) - len(answers))
    return tuple(
        Word(word, label, probability)
        for word, (label, probability) in zip(encoding.words, answers + unread, strict=True)
    )


# What answers for a task.
MODELS: dict[str, type[Classifier] | type[Tagger]] = {
    TEXT_CLASSIFICATION: Classifier,
    TOKEN_CLASSIFICATION: Tagger,
}


def open_model(artifact: Artifact, runtime: str) -> Classifier | Tagger:
    """Open what answers for the artifact's task; the arguments and errors are those of `Model`."""
    return MODELS[artifact.metadata["task"]](artifact, runtime)


def decide(
    logits: npt.NDArray[Any], labels: list[str], temperature: float, threshold: float
) -> list[tuple[str | None, float]]:
    """Turn logits (answers, labels) into each answer's label, None below the threshold, and its probability."""
    probabilities = softmax(logits, temperature)
    best = probabilities.argmax(axis=-1)
    leading = probabilities.max(axis=-1, initial=0.0)
    return [
        (labels[index] if probability >= threshold else None, float(probability))
        for index, probability in zip(best, leading, strict=True)
    ]


def softmax(logits: npt.NDArray[Any], temperature: float = 1.0) -> npt.NDArray[np.float64]:
    """Return the probabilities of logits / temperature over the last axis, in float64."""
    scaled = (logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)) / temperature
    shifted = np.exp(scaled)
    probabilities: npt.NDArray[np.float64] = shifted / shifted.sum(axis=-1, keepdims=True)
    return probabilities


def _shorten(message: str) -> str:
    return message if len(message) <= 200 else message[:200] + " …"
