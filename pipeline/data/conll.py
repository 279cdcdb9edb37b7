"""Sentences of words with tags, from CoNLL files: a word a line, a blank line behind a sentence; read as a stream.

The word stands in the first column, its tag in the last; columns are separated by tabs if the first line of words has
a tab, and by blanks if not, and every line has as many as that one. Skipped are `-DOCSTART-` lines, and comments: lines
before a sentence's first word that start with `#` and don't have the file's columns.

Tags are BIO (`O`, `B-x`, `I-x`) if any looks like it. Then the prefixes E, S, L and U of IOBES and BILOU are read too,
as tags of their own. If none looks like it, the tags are plain, such as parts of speech, and any word is one.

Not supported: CoNLL-U, whose first column is a number.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pipeline.data.lines import BadRow, Line, read_lines
from pipeline.data.tables import MAX_CELL_CHARACTERS

SUFFIXES = (".conll", ".iob", ".bio")
# A file without blank lines must not become one sentence.
MAX_WORDS = 10_000
OUTSIDE = "O"

_BLANKS = "\t\n\v\f\r \0"
_WHITE_SPACE = re.compile("[\t-\r \0]")
_BIO = re.compile("[BI]-.+")
_PREFIXED = re.compile("[BIESLU]-.+")


@dataclass(frozen=True, slots=True)
class Sentence:
    """Words without white space, the tag of each, and the line of the first, from 1."""

    line: int
    words: list[str]
    tags: list[str]


class _Layout(NamedTuple):
    tabs: bool
    width: int


def _split(text: str, *, tabs: bool) -> list[str]:
    """The columns of a line that is not blank; of all white space only U+0020, and the tab, stand between them."""
    text = text.rstrip("\r\n")
    if tabs:
        return [part.strip(" ") for part in text.split("\t")]
    return [part for part in text.split(" ") if part]


def make_spans(tags: Iterable[str]) -> bool:
    """Whether any of these tags is `B-x` or `I-x`; if none is, they are plain, such as parts of speech."""
    return any(map(_BIO.fullmatch, tags))


def looks_like_bio(paths: Iterable[Path]) -> bool:
    """Whether any tag of these files is `B-x` or `I-x`.

    Raises:
        ValueError: if a file is empty or can't be read.
    """
    return any(
        isinstance(sentence, Sentence) and make_spans(sentence.tags)
        for path in paths
        for sentence in read_sentences(path, bio=False)
    )


def read_sentences(path: Path, *, bio: bool) -> Iterator[Sentence | BadRow]:
    """Yield every sentence; one with a bad line is a BadRow that names its first bad line.

    Args:
        path: the file.
        bio: whether a tag that is not BIO (or IOBES, or BILOU) makes a line bad.

    Raises:
        ValueError: if the file is empty or can't be read.
    """
    layout = _layout(path)
    lines: list[tuple[Line, list[str]]] = []
    words = 0
    for line in read_lines(path):
        blank = not line.problem and not line.text.strip(_BLANKS)
        parts = [] if blank else _split(line.text, tabs=layout.tabs)
        if blank or parts[0] == "-DOCSTART-":
            if lines:
                yield _sentence(path, lines, words, layout, bio=bio)
            lines, words = [], 0
        elif words or not _is_comment(line, parts, layout):
            words += 1
            # Beyond the limit a sentence is bad, whatever follows.
            if words <= MAX_WORDS:
                lines.append((line, parts))
    if lines:
        yield _sentence(path, lines, words, layout, bio=bio)


def _layout(path: Path) -> _Layout:
    for line in read_lines(path):
        text = line.text.strip(_BLANKS)
        if text and not text.startswith(("#", "-DOCSTART-")) and not line.problem:
            tabs = "\t" in text
            return _Layout(tabs, len(_split(line.text, tabs=tabs)))
    raise ValueError(f"{path} has no line with a word and a tag. Is it empty, or of another format?")


def _is_comment(line: Line, parts: list[str], layout: _Layout) -> bool:
    return line.text.startswith("#") and not line.problem and len(parts) != layout.width


def _sentence(
    path: Path, lines: list[tuple[Line, list[str]]], words: int, layout: _Layout, *, bio: bool
) -> Sentence | BadRow:
    if words > MAX_WORDS:
        reason = f"a sentence of {words:,} words; {MAX_WORDS:,} are allowed. Put a blank line behind each sentence."
        return BadRow(str(path), lines[0][0].number, reason)
    for line, parts in lines:
        reason = line.problem or _problem(parts, layout, bio=bio)
        if reason:
            return BadRow(str(path), line.number, reason)
    return Sentence(lines[0][0].number, [parts[0] for _, parts in lines], [parts[-1] for _, parts in lines])


def _problem(parts: list[str], layout: _Layout, *, bio: bool) -> str:
    if len(parts) < 2 or not parts[-1]:
        return "the line has a word without a tag."
    if len(parts) != layout.width:
        return f"the line must have {layout.width} columns, as the file's first; got {len(parts)}."
    word, tag = parts[0], parts[-1]
    if not word or _WHITE_SPACE.search(word):
        return f"the word must be without white space, and not empty; got {word[:50]!r}."
    if len(word) > MAX_CELL_CHARACTERS:
        return f"the word is longer than {MAX_CELL_CHARACTERS:,} characters."
    if not tag.isprintable() or _WHITE_SPACE.search(tag):
        return f"the tag must be without white space and control characters; got {tag[:50]!r}."
    if bio and tag != OUTSIDE and not _PREFIXED.fullmatch(tag):
        return f"the tag must be O, B-x or I-x, as others of the data are; got {tag[:50]!r}."
    return ""
