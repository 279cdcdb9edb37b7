"""What the benchmarks leave for the report: each part of `make bench` writes one file, and the report makes one of all.

A part is ratios, by the names that the report shows, tables for people, and whatever else it measured.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.results import describe_machine, describe_versions, write_result
from export.errors import FerryError
from export.files import dump_json, read_json
from pipeline.run import ROOT

WORK = ROOT / "build" / "bench"


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table for people; every cell is text."""

    title: str
    columns: list[str]
    rows: list[list[str]]


@dataclass(frozen=True, kw_only=True)
class Part:
    """What one benchmark found.

    `ratios` is name -> {median, low, high, peer}; `measured` is its own and may hold anything that JSON does;
    `left_out` says in a sentence each what was not measured, and why.
    """

    name: str
    ratios: dict[str, dict[str, Any]]
    measured: dict[str, Any]
    tables: list[Table] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    machine: dict[str, Any] = field(default_factory=describe_machine)
    versions: dict[str, str] = field(default_factory=describe_versions)


def write_part(folder: Path, part: Part) -> Path:
    """Write a part into the folder of parts, whole or not at all.

    Raises:
        OSError: if it can't be written.
    """
    file = folder / f"{part.name}.json"
    write_result(file, dump_json(asdict(part)).encode())
    return file


def read_parts(folder: Path) -> list[Part]:
    """Read the parts of a folder, by name.

    Raises:
        ValueError: if there is none, or a file is no part.
        FerryError: if they were not measured on one machine with one set of versions.
    """
    parts = []
    for file in sorted(folder.glob("*.json")):
        document = read_json(file)
        try:
            tables = [Table(**table) for table in document.pop("tables")]
            parts.append(Part(**document, tables=tables))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{file} is not what a benchmark writes: {error}. Measure again.") from None
    if not parts:
        raise ValueError(f"{folder} holds nothing that was measured. Run `make bench`.")
    for part in parts[1:]:
        if (part.machine, part.versions) != (parts[0].machine, parts[0].versions):
            raise FerryError(
                f"{part.name} and {parts[0].name} were measured on other machines or with other versions: "
                f"{json.dumps([part.machine, part.versions])} and "
                f"{json.dumps([parts[0].machine, parts[0].versions])}. Run `make bench`."
            )
    return parts


def merge(parts: Sequence[Part]) -> dict[str, Any]:
    """Return the document of results: machine, versions, all ratios, what was left out, and each part by its name.

    Raises:
        ValueError: if two parts give a ratio of one name.
    """
    ratios: dict[str, Any] = {}
    for part in parts:
        twice = ratios.keys() & part.ratios.keys()
        if twice:
            raise ValueError(f"two parts give {', '.join(sorted(twice))}.")
        ratios |= part.ratios
    return {
        "machine": parts[0].machine,
        "versions": parts[0].versions,
        "ratios": ratios,
        "left_out": [reason for part in parts for reason in part.left_out],
        **{part.name: part.measured for part in parts},
    }
