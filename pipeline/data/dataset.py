"""A data set: inputs and label indices in three splits, with where they come from."""

import gzip
import hashlib
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from export.contract import TEXT_CLASSIFICATION
from pipeline.data.lines import BadRow

SPLITS = ("train", "validation", "test")


@dataclass(frozen=True, eq=False)
class Split:
    """Inputs and, for each, what a model should answer.

    For text classification a text and the index of its label, targets (rows,); for token classification the words of a
    sentence and the index of each word's tag, targets (words,) a sentence. Inputs may be a view of a file.
    """

    inputs: Sequence[str] | Sequence[list[str]]
    targets: npt.NDArray[np.int64] | Sequence[npt.NDArray[np.int64]]


@dataclass(frozen=True, eq=False)
class Dataset:
    """A labelled data set.

    `sha256` is over what it was read from and how; `none` holds texts of validation and test that fit no class;
    `notes` says what a person should know, a sentence each; of `bad_rows` the first are kept; `rows_read` counts them.
    """

    name: str
    labels: list[str]
    train: Split
    validation: Split
    test: Split
    sha256: str
    licence: str
    attribution: str
    origin: str
    task: str = TEXT_CLASSIFICATION
    none: Mapping[str, Sequence[str]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    bad_rows: tuple[BadRow, ...] = ()
    rows_read: int = 0


def load_dataset(name: str = "licences") -> Dataset:
    """Load a data set by its name in DATASETS.

    Raises:
        ValueError: if there is no such data set, or its file is missing or damaged.
    """
    if name not in DATASETS:
        raise ValueError(f"unknown data set {name!r}. Choose one of: {', '.join(sorted(DATASETS))}.")
    return DATASETS[name]()


def load_record(path: Path) -> Dataset:
    """Load a data set from its record: a JSON file that names the data file beside it, its hash and its labels.

    The data file is gzipped JSON lines, each an object with `split`, `label` and `text`.

    Raises:
        ValueError: if a file is missing, damaged or not the one that the record names.
    """
    try:
        record = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} can't be read: {error}. Restore it from the repository.") from None
    if not isinstance(record, dict) or not record.keys() >= _RECORD_KEYS:
        raise ValueError(f"{path} must be a JSON object with {', '.join(sorted(_RECORD_KEYS))}. Restore it.")
    file = path.with_name(record["file"])
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ValueError(f"{file} can't be read: {error.strerror}. Restore it from the repository.") from None
    sha256 = hashlib.sha256(data).hexdigest()
    if sha256 != record["sha256"]:
        raise ValueError(
            f"{file} is damaged: its SHA-256 must be {record['sha256']}; got {sha256}. Restore it from the repository."
        )
    splits = _parse(data, record["labels"], file)
    return Dataset(
        name=record["name"],
        labels=record["labels"],
        train=splits["train"],
        validation=splits["validation"],
        test=splits["test"],
        sha256=sha256,
        licence=record["licence"],
        attribution=record["attribution"],
        origin=record["origin"],
        rows_read=sum(len(split.inputs) for split in splits.values()),
    )


_RECORD_KEYS = {"name", "file", "sha256", "labels", "licence", "attribution", "origin"}


def _parse(data: bytes, labels: list[str], file: Path) -> dict[str, Split]:
    index = {label: number for number, label in enumerate(labels)}
    texts: dict[str, list[str]] = {split: [] for split in SPLITS}
    targets: dict[str, list[int]] = {split: [] for split in SPLITS}
    try:
        lines = gzip.decompress(data).decode("utf-8").removesuffix("\n").split("\n")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise ValueError(f"{file} is not a gzip file of UTF-8 text: {error}.") from None
    for number, line in enumerate(lines, start=1):
        split, label, text = _parse_line(line, f"line {number} of {file}")
        if split not in texts:
            raise ValueError(f"line {number} of {file}: split must be one of {', '.join(SPLITS)}; got {split!r}.")
        if label not in index:
            raise ValueError(f"line {number} of {file}: the label {label!r} is not among the record's labels.")
        texts[split].append(text)
        targets[split].append(index[label])
    for name, own in texts.items():
        if not own:
            raise ValueError(f"{file} has no row of the {name} split.")
    return {split: Split(texts[split], np.array(targets[split], np.int64)) for split in SPLITS}


def _parse_line(line: str, where: str) -> tuple[str, str, str]:
    try:
        row: Any = json.loads(line)
    except ValueError as error:
        raise ValueError(f"{where} is not JSON: {error}.") from None
    match row:
        case {"split": str(split), "label": str(label), "text": str(text)}:
            return split, label, text
    raise ValueError(f"{where} must be an object with the strings split, label and text.")


def _load_licences() -> Dataset:
    return load_record(Path(__file__).parent / "licences" / "licences.json")


DATASETS: dict[str, Callable[[], Dataset]] = {"licences": _load_licences}
