"""Tables written row by row, by the end of the file's name: CSV, TSV, JSON lines, Parquet.

A table's columns are told with what they hold; None is an empty cell. Words, a list of objects, are JSON in their cell
where the format knows no lists.
"""

import csv
import io
import json
from collections.abc import Callable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

Kind = Literal["text", "number", "whole number", "words"]
Rows = Iterator[dict[str, Any]]
Write = Callable[[Path, Rows, dict[str, Kind]], None]

_PARQUET_ROWS = 2048


def write_jsonl(path: Path, rows: Rows, columns: dict[str, Kind]) -> None:
    """Write an object a line."""
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps({name: row[name] for name in columns}, ensure_ascii=False) + "\n")


def write_csv(path: Path, rows: Rows, columns: dict[str, Kind]) -> None:
    """Write a header and rows, quoted where it is needed (RFC 4180, with LF)."""
    _write_delimited(path, rows, columns, ",")


def write_tsv(path: Path, rows: Rows, columns: dict[str, Kind]) -> None:
    """Write the same with tabs."""
    _write_delimited(path, rows, columns, "\t")


def _write_delimited(path: Path, rows: Rows, columns: dict[str, Kind], delimiter: str) -> None:
    line = io.StringIO(newline="")
    # Given CR LF as the end of a line, the writer quotes cells that hold either; given LF, a CR would stand bare.
    writer = csv.writer(line, lineterminator="\r\n", delimiter=delimiter)
    with path.open("w", encoding="utf-8", newline="") as file:
        for cells in chain([columns], ([_cell(row[name]) for name in columns] for row in rows)):
            writer.writerow(cells)
            file.write(line.getvalue().removesuffix("\r\n") + "\n")
            line.seek(0)
            line.truncate()


def _cell(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value


def write_parquet(path: Path, rows: Rows, columns: dict[str, Kind]) -> None:
    """Write row groups of a few thousand rows."""
    text = pa.string()
    word = pa.struct([("word", text), ("label", text), ("probability", pa.float64())])
    kinds = {"text": text, "number": pa.float64(), "whole number": pa.int64(), "words": pa.list_(word)}
    schema = pa.schema([(name, kinds[kind]) for name, kind in columns.items()])
    with pq.ParquetWriter(path, schema) as writer:
        while chunk := list(islice(rows, _PARQUET_ROWS)):
            writer.write_table(pa.Table.from_pylist([{name: row[name] for name in columns} for row in chunk], schema))


WRITERS: dict[str, Write] = {
    ".csv": write_csv,
    ".tsv": write_tsv,
    ".jsonl": write_jsonl,
    ".parquet": write_parquet,
}


def choose_writer(path: Path) -> Write:
    """Return what writes a file of this name.

    Raises:
        ValueError: if its end is none of WRITERS.
    """
    suffix = path.suffix.lower()
    if suffix not in WRITERS:
        raise ValueError(f"{path} must end in one of {', '.join(WRITERS)}, which says how to write it. Rename it.")
    return WRITERS[suffix]
