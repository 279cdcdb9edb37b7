"""Which files fill which split: files are taken as they are named, folders by what their files are called."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.data import conll
from pipeline.data.lines import file_problem
from pipeline.data.tables import TABLES, suffix_of

FORMATS = (*TABLES, *conll.SUFFIXES)
SPLIT_NAMES = {
    "train": "train",
    "training": "train",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "dev": "validation",
    "test": "test",
}
# A part of many has a number, and may have a hash: train-00000-of-00002-0123456789abcdef.parquet.
_STEM = re.compile(rf"({'|'.join(SPLIT_NAMES)})(?:[-_.]\d+(?:-of-\d+(?:-[0-9a-f]+)?)?)?", re.IGNORECASE)


@dataclass(frozen=True)
class Found:
    """The files of each split, in the order in which they are read; `notes` says which files are not used."""

    train: tuple[Path, ...]
    validation: tuple[Path, ...]
    test: tuple[Path, ...]
    notes: tuple[str, ...]


def find_files(train: Sequence[str], validation: Sequence[str], test: Sequence[str]) -> Found:
    """Resolve files and folders.

    A folder among `train` whose files are called after splits (SPLIT_NAMES) fills these; of any other folder, all files
    of a known format are read, in the order of their names. Hidden files and sub-folders are left out.

    Raises:
        ValueError: if a file or folder is missing, of no known format, named twice, or a folder is ambiguous.
    """
    asked = {"train": train, "validation": validation, "test": test}
    found: dict[str, list[Path]] = {split: [] for split in asked}
    notes: list[str] = []
    for split, names in asked.items():
        for name in names:
            path = Path(name)
            if path.is_dir():
                for own, files in _open_folder(path, split, asked, notes).items():
                    found[own] += files
            elif wrong := file_problem(path):
                raise ValueError(f"{path} {wrong}. Give a file or folder of labelled data.")
            else:
                _check_format(path)
                found[split].append(path)
    _check_twice(found)
    return Found(tuple(found["train"]), tuple(found["validation"]), tuple(found["test"]), tuple(notes))


def _open_folder(
    folder: Path, asked_split: str, asked: dict[str, Sequence[str]], notes: list[str]
) -> dict[str, list[Path]]:
    files = sorted(
        (path for path in folder.iterdir() if path.is_file() and not path.name.startswith(".") and _is_data(path)),
        key=lambda path: path.name,
    )
    if not files:
        raise ValueError(f"{folder} holds no data file. Known are {', '.join(FORMATS)}.")
    named = {split: [path for path in files if _split_of(path) == split] for split in asked}
    if any(named.values()):
        if not named[asked_split]:
            raise ValueError(
                f"{folder} has files called after splits, but none for {asked_split}: "
                f"{_names(files)}. Name the files that you mean."
            )
        # What was named by itself counts; a folder given for one split fills no other.
        used = {
            split: own
            for split, own in named.items()
            if own and (split == asked_split or (asked_split == "train" and not asked[split]))
        }
        for split, own in used.items():
            _check_one_kind(folder, split, own)
    else:
        used = {asked_split: files}
        stems: dict[str, Path] = {}
        for path in files:
            other = stems.setdefault(_stem(path).lower(), path)
            if other is not path:
                raise ValueError(
                    f"{folder} holds both {other.name} and {path.name}. "
                    "Name the one that you mean instead of the folder."
                )
    left = [path for path in files if not any(path in own for own in used.values())]
    if left:
        notes.append(f"{folder.name}: not used are {_names(left)}.")
    return used


def _check_one_kind(folder: Path, split: str, files: list[Path]) -> None:
    """Refuse two files for one split unless they are numbered parts of one name and format."""
    stems = {_stem(path).lower() for path in files}
    if len({_kind(path) for path in files}) > 1 or len(stems) < len(files):
        raise ValueError(
            f"{folder} holds more than one file for {split}: {_names(files)}. "
            "Name the one that you mean instead of the folder."
        )


def _kind(path: Path) -> tuple[str, str, bool]:
    match = _STEM.fullmatch(_stem(path))
    assert match is not None
    return match[1].lower(), suffix_of(path), match[0] == match[1]


def _split_of(path: Path) -> str | None:
    match = _STEM.fullmatch(_stem(path))
    return SPLIT_NAMES[match[1].lower()] if match else None


def _stem(path: Path) -> str:
    name = path.name[: -len(".gz")] if path.name.lower().endswith(".gz") else path.name
    return Path(name).stem


def _is_data(path: Path) -> bool:
    return suffix_of(path) in FORMATS


def _check_format(path: Path) -> None:
    if not _is_data(path):
        raise ValueError(f"{path} must end in one of {', '.join(FORMATS)}, which says how to read it. Rename it.")


def _check_twice(found: dict[str, list[Path]]) -> None:
    seen: dict[Path, str] = {}
    for split, files in found.items():
        for path in files:
            if path.resolve() in seen:
                raise ValueError(f"{path} is named for {seen[path.resolve()]} and for {split}. Name every file once.")
            seen[path.resolve()] = split


def _names(files: Sequence[Path]) -> str:
    return ", ".join(path.name for path in files)
