"""A data set in memory: texts and label indices in three splits, with where they come from."""

import gzip
import hashlib
import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class Split:
    """Texts and, for each, the index of its label."""

    texts: list[str]
    labels: list[int]


@dataclass(frozen=True)
class Dataset:
    """A labelled data set; `sha256` is that of the file it was read from."""

    name: str
    labels: list[str]
    train: Split
    validation: Split
    test: Split
    sha256: str
    licence: str
    attribution: str
    origin: str


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
    )


_RECORD_KEYS = {"name", "file", "sha256", "labels", "licence", "attribution", "origin"}


def _parse(data: bytes, labels: list[str], file: Path) -> dict[str, Split]:
    index = {label: number for number, label in enumerate(labels)}
    splits = {split: Split([], []) for split in SPLITS}
    try:
        lines = gzip.decompress(data).decode("utf-8").removesuffix("\n").split("\n")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise ValueError(f"{file} is not a gzip file of UTF-8 text: {error}.") from None
    for number, line in enumerate(lines, start=1):
        split, label, text = _parse_line(line, f"line {number} of {file}")
        if split not in splits:
            raise ValueError(f"line {number} of {file}: split must be one of {', '.join(SPLITS)}; got {split!r}.")
        if label not in index:
            raise ValueError(f"line {number} of {file}: the label {label!r} is not among the record's labels.")
        splits[split].texts.append(text)
        splits[split].labels.append(index[label])
    for name, split_ in splits.items():
        if not split_.texts:
            raise ValueError(f"{file} has no row of the {name} split.")
    return splits


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
