"""The rows of one labelled file: CSV, TSV, JSON lines or Parquet, read as a stream in bounded memory.

A row that can't be used is yielded as a `BadRow` in its place, and reading goes on behind it. CSV follows RFC 4180; a
quote that never closes, or closes only behind lines that are rows (see quotes.py), costs its own row only, because the
lines behind it are read anew. Whether a TSV file is quoted is decided for the whole file, and told if it has any
quotation mark.

Not supported: delimiters other than commas, tabs and semicolons, escape characters, comments, files without a header.
"""

import csv
import json
import math
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Protocol

from pipeline.data.lines import BadRow, Line, file_problem, mark_notes, read_lines, reason_of
from pipeline.data.quotes import count_swallowed, find_unexplained

MAX_CELL_CHARACTERS = 1_000_000
# Any real row fits, and it is little enough to hold twice.
_MAX_ROW_CHARACTERS = 16 * MAX_CELL_CHARACTERS
# Optional keys of JSON lines may be absent from the first row.
_PEEKED_ROWS = 100
# So many Parquet rows are in memory at once.
_PARQUET_BATCH = 1024
# Bytes of a column that are read at a time.
_PARQUET_BUFFER = 1 << 20

_LONG_CELL = f"a cell is longer than {MAX_CELL_CHARACTERS:,} characters"
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Row:
    """The line where a row starts (for Parquet the row's number), from 1, and its cells by column."""

    line: int
    values: dict[str, str]


class Table(Protocol):
    """One file of rows; `notes` says what a person should know about how it is read."""

    path: Path
    columns: list[str]
    notes: list[str]

    def rows(self, columns: Sequence[str]) -> Iterator[Row | BadRow]:
        """Yield every row's cells in these columns, which the table must have.

        Raises:
            ValueError: if the file is damaged.
        """
        ...


def suffix_of(path: Path) -> str:
    """Return the end of the name that decides the format: in lower case, and of a packed text file without `.gz`."""
    suffix = Path(path.name.lower().removesuffix(".gz")).suffix
    # Parquet packs its own columns, and is not read from its beginning.
    return ".gz" if suffix == ".parquet" and path.name.lower().endswith(".gz") else suffix


def open_table(path: Path) -> Table:
    """Open a file by the end of its name, one of TABLES, for text formats also followed by `.gz`.

    Raises:
        ValueError: if the format is unknown, the path is no regular file, or the file is empty, damaged or without a
                header that can be used.
    """
    suffix = suffix_of(path)
    if suffix not in TABLES:
        raise ValueError(f"{path} must end in one of {', '.join(TABLES)}, which says how to read it. Rename it.")
    wrong = file_problem(path)
    if wrong:
        raise ValueError(f"{path} {wrong}. Give a file of data.")
    return TABLES[suffix](path)


class DelimitedTable:
    """A CSV or TSV file with a header."""

    def __init__(self, path: Path, delimiter: str) -> None:
        """Read the header and, for TSV, decide on quotes.

        Raises:
            ValueError: if the file is empty or damaged, or the header can't be used.
        """
        self.path = path
        self.notes = mark_notes(path)
        self._dialect: dict[str, Any] = {"delimiter": delimiter, "strict": True}
        self._is_csv = delimiter != "\t"
        self._named = "semicolon" if delimiter == ";" else "comma"
        if not self._is_csv:
            self._decide_on_quotes()
        header = next(self._records(), None)
        if header is None:
            raise ValueError(f"{path} is empty. It must have a header and rows.")
        line, fields = header
        if isinstance(fields, str):
            raise ValueError(f"{path}, line {line}, the header: {fields}")
        self.columns = [field.strip() for field in fields]
        _check_columns(path, self.columns)
        if len(self.columns) == 1 and re.search("[;\t|]", self.columns[0]):
            raise ValueError(
                f"{path} has the single column {self.columns[0]!r}, so it is separated by something else than "
                f"{delimiter!r}. Save it with commas as .csv or with tabs as .tsv."
            )

    def rows(self, columns: Sequence[str]) -> Iterator[Row | BadRow]:
        """Yield every row's cells in these columns."""
        wanted = [(column, self.columns.index(column)) for column in columns]
        width = len(self.columns)
        records = self._records()
        if next(records, None) is None:
            raise _changed(self.path)
        for line, fields in records:
            if isinstance(fields, str):
                yield BadRow(str(self.path), line, fields)
            elif len(fields) != width:
                reason = f"the row must have {width} fields, as the header; got {len(fields)}."
                hint = f" Quote a text that holds a {self._named}." if self._is_csv and len(fields) > width else ""
                yield BadRow(str(self.path), line, reason + hint)
            else:
                yield Row(line, {column: fields[index] for column, index in wanted})

    def _records(self) -> Iterator[tuple[int, list[str] | str]]:
        """Yield (line, fields) of every record that is not blank, or (line, what is wrong with it)."""
        # The limit is one for the whole process; nothing else in Ferry reads CSV.
        csv.field_size_limit(MAX_CELL_CHARACTERS)
        feed = _Feed(read_lines(self.path))
        reader = csv.reader(feed, **self._dialect)
        header = None
        while True:
            feed.begin_record()
            try:
                fields = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                first = feed.taken[0]
                yield first.number, first.problem or _csv_reason(error, len(feed.taken))
                feed.take_back()
                continue
            if header is None and feed.taken[0].text.strip():
                # Of its first line, since its own quotation mark may be the one that is missing.
                header = next(csv.reader([feed.taken[0].text], delimiter=self._dialect["delimiter"]))
            swallowed = count_swallowed(feed.taken, header or [], self._dialect["delimiter"])
            if swallowed:
                yield feed.taken[0].number, feed.taken[0].problem or _swallowed_reason(swallowed)
                feed.take_back()
                continue
            problem = next((line.problem for line in feed.taken if line.problem), None)
            if problem is not None:
                yield feed.taken[0].number, problem
            elif fields and (len(fields) > 1 or fields[0].strip()):
                yield feed.taken[0].number, fields

    def _decide_on_quotes(self) -> None:
        any_mark, unexplained = find_unexplained(read_lines(self.path), longest=MAX_CELL_CHARACTERS)
        if unexplained is not None:
            self._dialect["quoting"] = csv.QUOTE_NONE
            self.notes.append(
                f"{self.path.name}: quotation marks are text, as quoting doesn't explain those of line {unexplained}."
            )
        elif any_mark:
            self.notes.append(f"{self.path.name}: fields are quoted, which explains every quotation mark.")


class _Feed:
    """Hands lines to csv.reader, and takes back all but the first of the record that it was reading."""

    def __init__(self, lines: Iterator[Line]) -> None:
        self.taken: list[Line] = []
        self._lines = lines
        self._again: deque[Line] = deque()
        self._size = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._again.popleft() if self._again else next(self._lines)
        self.taken.append(line)
        self._size += len(line.text)
        if self._size > _MAX_ROW_CHARACTERS:
            raise csv.Error("field larger than field limit")
        return line.text

    def begin_record(self) -> None:
        self.taken, self._size = [], 0

    def take_back(self) -> None:
        self._again.extendleft(reversed(self.taken[1:]))


def _csv_reason(error: csv.Error, lines: int) -> str:
    words = str(error)
    if "field limit" in words:
        return f"{_LONG_CELL}. Is a quotation mark unclosed?"
    if "unexpected end" in words:
        return "a quotation mark is never closed."
    if "expected after" in words:
        over = f", {lines - 1} lines on" if lines > 1 else ""
        return f"a quoted field goes on behind its closing quotation mark{over}. Double the marks inside a field."
    return f"{words}."


def _swallowed_reason(lines: int) -> str:
    return (
        f"a quotation mark is missing: a quoted field goes on over the next {lines} lines, which look like rows. "
        "Close it, or save the data as .jsonl if they are text."
    )


class JsonLinesTable:
    """A file with one JSON object a line."""

    def __init__(self, path: Path) -> None:
        """Learn the columns from the first rows.

        Raises:
            ValueError: if the file is damaged or no row is among the first.
        """
        self.path = path
        self.notes = mark_notes(path)
        columns: dict[str, None] = {}
        first_problem = None
        for number, (line, found) in enumerate(self._objects(), start=1):
            if isinstance(found, dict):
                columns.update(dict.fromkeys(found))
            else:
                first_problem = first_problem or BadRow(str(path), line, found)
            if number == _PEEKED_ROWS:
                break
        if not columns:
            raise ValueError(f"{first_problem}" if first_problem else f"{path} is empty. It must have a row a line.")
        self.columns = list(columns)

    def rows(self, columns: Sequence[str]) -> Iterator[Row | BadRow]:
        """Yield every row's cells in these columns; numbers are the text that stands in the file."""
        for line, found in self._objects():
            yield _row(str(self.path), line, found if isinstance(found, str) else (found, columns))

    def _objects(self) -> Iterator[tuple[int, dict[str, Any] | str]]:
        for line in read_lines(self.path):
            if line.problem:
                yield line.number, line.problem
            elif line.text.strip():
                yield line.number, _parse_object(line.text)


def _parse_object(text: str) -> dict[str, Any] | str:
    try:
        found = _DECODER.decode(text.strip())
    except json.JSONDecodeError as error:
        return f"the line is not JSON: {error.msg} at character {error.pos + 1}."
    except ValueError as error:
        return f"the line is not JSON: {error}."
    except RecursionError:
        return "the line is nested too deeply."
    return found if isinstance(found, dict) else "the line must be a JSON object, {column: value, …}."


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return made


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


# A number stays the text that stands in the file: 1 is "1", 1.0 is "1.0".
_DECODER = json.JSONDecoder(
    parse_int=str, parse_float=str, parse_constant=_refuse_constant, object_pairs_hook=_unique_keys
)


class ParquetTable:
    """A Parquet file, read in batches."""

    def __init__(self, path: Path) -> None:
        """Read the schema.

        Raises:
            ValueError: if the file is empty or no Parquet file, or its columns can't be used.
        """
        self.path = path
        self.notes: list[str] = []
        if not path.stat().st_size:
            raise ValueError(f"{path} is empty. It must have a header and rows.")
        with self._opened() as file:
            self.columns = list(file.schema_arrow.names)
        _check_columns(path, self.columns)

    def rows(self, columns: Sequence[str]) -> Iterator[Row | BadRow]:
        """Yield every row's cells in these columns; line is the row's number, from 1."""
        from pyarrow import ArrowException

        number = 0
        with self._opened() as file:
            if list(file.schema_arrow.names) != self.columns:
                raise _changed(self.path)
            batches = file.iter_batches(batch_size=_PARQUET_BATCH, columns=list(columns))
            while True:
                try:
                    batch = next(batches, None)
                except (ArrowException, OSError) as error:
                    raise ValueError(f"{self.path} is damaged behind row {number}: {reason_of(error)}.") from None
                if batch is None:
                    return
                cells = [_plain_values(batch.column(column)) for column in columns]
                for values in zip(*cells, strict=True):
                    number += 1
                    yield _row(str(self.path), number, (dict(zip(columns, values, strict=True)), columns))

    def _opened(self) -> Any:
        from pyarrow import ArrowException, parquet

        try:
            # Not mapped: a file that is cut short meanwhile would end the process, beyond any handler. Without a buffer
            # ahead, and with a small one to read through, memory is that of a batch and not of the whole row group.
            return parquet.ParquetFile(self.path, memory_map=False, pre_buffer=False, buffer_size=_PARQUET_BUFFER)
        except (ArrowException, OSError) as error:
            raise ValueError(f"{self.path} can't be read as Parquet: {reason_of(error)}.") from None


def _plain_values(column: Any) -> list[Any]:
    try:
        return list(column.to_pylist())
    except UnicodeDecodeError:
        return [_plain_value(value) for value in column]


def _plain_value(value: Any) -> Any:
    try:
        return value.as_py()
    except UnicodeDecodeError:
        return value.as_buffer().to_pybytes()


def _row(file: str, line: int, found: tuple[dict[str, Any], Sequence[str]] | str) -> Row | BadRow:
    """Turn the values of the wanted columns into text, or say which of them can't be."""
    if isinstance(found, str):
        return BadRow(file, line, found)
    values, columns = found
    cells = {}
    for column in columns:
        if column not in values:
            return BadRow(file, line, f"the row has no {column!r}.")
        value = values[column]
        try:
            text = value if type(value) is str else _text(value)
        except ValueError as error:
            return BadRow(file, line, f"{column!r} {error}.")
        if len(text) > MAX_CELL_CHARACTERS:
            return BadRow(file, line, f"{column!r}: {_LONG_CELL}.")
        if not text.isascii() and _SURROGATE.search(text):
            return BadRow(file, line, f"{column!r} holds a lone surrogate, which is no character.")
        cells[column] = text
    return Row(line, cells)


def _text(value: object) -> str:
    """The text of a number, a truth value or UTF-8 bytes."""
    match value:
        case None:
            raise ValueError("is null")
        case bool():
            return "true" if value else "false"
        case float() if not math.isfinite(value):
            raise ValueError(f"is {value}")
        case int() | float() | Decimal():
            return str(value)
        case bytes():
            try:
                return value.decode("utf-8")
            except UnicodeDecodeError as error:
                raise ValueError(f"is not UTF-8: byte 0x{value[error.start]:02x} at offset {error.start}") from None
    raise ValueError(f"must be text or a number; got a value of type {type(value).__name__}")


def _changed(path: Path) -> ValueError:
    return ValueError(f"{path} was changed while it was read. Run again.")


def _check_columns(path: Path, columns: list[str]) -> None:
    if any("\0" in column for column in columns):
        raise ValueError(f"{path}: the header holds U+0000, as in UTF-16 or UTF-32. Convert the file to UTF-8.")
    if not all(columns):
        raise ValueError(
            f"{path}: column {columns.index('') + 1} of the header has no name. Name it "
            "(pandas writes such a column unless it is told index=False)."
        )
    twice = sorted({column for column in columns if columns.count(column) > 1})
    if twice:
        raise ValueError(f"{path}: the header names {', '.join(map(repr, twice))} twice. Rename or remove one.")


def _csv(path: Path) -> Table:
    """Open a CSV file, whose delimiter is a semicolon where spreadsheets write commas into numbers."""
    first = next((line.text for line in read_lines(path) if line.text.strip()), "")
    if ";" not in first or "," in first:
        return DelimitedTable(path, ",")
    table = DelimitedTable(path, ";")
    table.notes.append(f"{path.name}: the columns are separated by semicolons, as the header has these and no comma.")
    return table


def _tsv(path: Path) -> Table:
    return DelimitedTable(path, "\t")


TABLES: dict[str, Callable[[Path], Table]] = {
    ".csv": _csv,
    ".tsv": _tsv,
    ".tab": _tsv,
    ".jsonl": JsonLinesTable,
    ".ndjson": JsonLinesTable,
    ".parquet": ParquetTable,
}
