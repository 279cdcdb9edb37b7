"""What the quotation marks of a table mean: whether those of a TSV file quote, and where one is missing.

TSV files quote their fields, or have marks that are text: both are common. They quote if *every* mark in the file is
explained by quoting, as RFC 4180 writes it with commas. Explained means: the field starts with a mark, its closing mark
stands right before a tab or the record's end, the marks between are doubled, and a field over several lines is not made
of lines that each have the header's number of fields, as those are rows.

In a quoted file, a mark that is missing lets its field go on until the next mark, over any number of rows. Such a field
is told from a text of many lines by these lines: see `count_swallowed`.
"""

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile

from pipeline.data.lines import Line

# Possessive quantifiers: without them a long field of marks would be tried in every way.
_FIELD = r'(?:"(?:[^"]++|"")*+"|[^"\t]*+)'
_RECORD = re.compile(rf"{_FIELD}(?:\t{_FIELD})*+")


def find_unexplained(lines: Iterable[Line], *, longest: int) -> tuple[bool, int | None]:
    """Return whether there is any quotation mark, and the first line whose marks are not explained by quoting.

    Args:
        lines: the lines of the file.
        longest: the characters that a record may have; a longer one is not explained.
    """
    any_mark, width = False, None
    for record in _group(lines, longest):
        if width is None:
            width = record[0].text.count("\t")
        if not any('"' in line.text for line in record):
            continue
        any_mark = True
        rows = len(record) > 1 and all(line.text.count("\t") == width for line in record)
        if rows or not _RECORD.fullmatch("".join(line.text for line in record).rstrip("\r\n")):
            return True, record[0].number
    return any_mark, None


# One or two lines of a text, such as those of an address, have the header's number of commas by chance.
_FEWEST_SWALLOWED = 3
# Among many rows some are bad themselves; of fewer than ten lines, all must look like rows.
_SHARE_OF_ROWS = 0.9


def count_swallowed(record: Sequence[Line], header: Sequence[str], delimiter: str) -> int:
    """Count the lines inside a record's first field of many lines if they are rows, which a missing mark made its text.

    They are if there are three at least, of which nine in ten look like rows: such a line has, read by itself, as many
    fields as the header and at least two; two of them hold something, as a text and a label do; and none starts with a
    blank, unless one of the header does. So prose is no row, as it has a blank behind a comma, nor is an indented line
    of a program, nor a line that merely ends in a comma. A text that quotes a table looks like rows all the same.

    Args:
        record: the lines of a record that was read as a whole, the first and the last included.
        header: its fields, as they stand in the file.
        delimiter: what stands between two fields.

    Returns:
        The number of lines, or 0 if they are text.
    """
    if len(record) < _FEWEST_SWALLOWED + 2 or len(header) < 2:
        return 0
    inner = list(takewhile(_is_inside, record[1:]))
    if len(inner) < _FEWEST_SWALLOWED:
        return 0
    blanks = any(field[:1].isspace() for field in header)
    rows = sum(_looks_like_row(line.text, len(header), delimiter, blanks=blanks) for line in inner)
    return len(inner) if rows >= _SHARE_OF_ROWS * len(inner) else 0


def _is_inside(line: Line) -> bool:
    """Whether a field that is open before the line is open behind it: a mark that is not doubled would close it."""
    return '"' not in line.text.replace('""', "")


def _looks_like_row(text: str, width: int, delimiter: str, *, blanks: bool) -> bool:
    try:
        fields = next(csv.reader([text], delimiter=delimiter, strict=True))
    except csv.Error:
        return False
    filled = sum(bool(field.strip()) for field in fields)
    return len(fields) == width and filled >= 2 and (blanks or not any(field[:1].isspace() for field in fields))


def _group(lines: Iterable[Line], longest: int) -> Iterator[list[Line]]:
    """Group lines into records: inside quotes, the number of marks so far is odd."""
    record: list[Line] = []
    marks = size = 0
    for line in lines:
        if not record and not line.text.strip():
            continue
        record.append(line)
        marks += line.text.count('"')
        size += len(line.text)
        if marks % 2 == 0 or size > longest:
            yield record
            record, marks, size = [], 0, 0
    if record:
        yield record
