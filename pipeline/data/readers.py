"""Files as examples: a text and the numbers of its labels, one for a table's row, one a word for a CoNLL sentence."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from pipeline.data import conll
from pipeline.data.columns import choose_columns, require_column
from pipeline.data.labels import MAX_LABELS, LabelBook, TooManyLabelsError, sort_labels
from pipeline.data.lines import BadRow, mark_notes
from pipeline.data.tables import open_table

Example = tuple[str, Sequence[int]]


class Reader(Protocol):
    """Reads files of one kind; `book` has the labels that were met, `notes` what a person should know."""

    book: LabelBook

    @property
    def notes(self) -> list[str]: ...

    def examples(self, path: Path) -> Iterator[Example | BadRow]:
        """Yield what stands in a file.

        Raises:
            ValueError: if the file is damaged, or its labels can't be labels.
        """
        ...

    def sort(self, labels: list[str]) -> list[str]:
        """Bring labels into the order of a model's outputs."""
        ...


class TableReader:
    """Reads tables: the text as it stands, and one label."""

    def __init__(self, paths: Sequence[Path], *, text: str, label: str, none_label: str) -> None:
        """Read the headers; the columns are named, or guessed from the first file.

        Raises:
            ValueError: if a header can't be used, a column is missing or can't be guessed.
        """
        self.book = LabelBook(none_label)
        self._tables = {path: open_table(path) for path in paths}
        first, *others = self._tables.values()
        self._columns = choose_columns(first.path, first.columns, text=text, label=label)
        for table in others:
            for name, what in zip(self._columns, ("text", "label"), strict=True):
                require_column(table.path, table.columns, name, what)
        self._guessed = not (text and label)

    @property
    def notes(self) -> list[str]:
        notes = [note for table in self._tables.values() for note in table.notes]
        if self._guessed:
            text, label = self._columns
            notes.append(f"guessed columns: the text is {text!r}, the label {label!r}.")
        return notes + self.book.notes()

    def examples(self, path: Path) -> Iterator[Example | BadRow]:
        """Yield (text, [label]) of every row."""
        text, label = self._columns
        for row in self._tables[path].rows(self._columns):
            if isinstance(row, BadRow):
                yield row
                continue
            try:
                number = self.book.number(row.values[label])
            except ValueError as error:
                yield BadRow(str(path), row.line, str(error))
            except TooManyLabelsError:
                raise ValueError(
                    f"{path}: the column {label!r} has more than {MAX_LABELS:,} different values. "
                    "Is it the label? Name another with --label."
                ) from None
            else:
                yield row.values[text], (number,)

    def sort(self, labels: list[str]) -> list[str]:
        """Sort by number if all are integers, and by code points if not."""
        return sort_labels(labels)


class ConllReader:
    """Reads CoNLL files: the words with one space between, and a tag a word."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Look whether the tags are BIO.

        Raises:
            ValueError: if a file is empty or can't be read.
        """
        self.book = LabelBook()
        self._paths = paths
        self._bio = conll.looks_like_bio(paths)

    @property
    def notes(self) -> list[str]:
        notes = [note for path in self._paths for note in mark_notes(path)]
        if not self._bio:
            notes.append("no tag is B-x or I-x, so the tags are plain: they are scored by word and not by span.")
        others = sorted({name[0] for name in self.book.names if name[1:2] == "-"} - set("BI"))
        if self._bio and others:
            notes.append(
                f"tags with the prefixes {', '.join(others)} are tags of their own; spans are read as BIO. "
                "Convert IOBES or BILOU to BIO if they are to count as spans."
            )
        return notes + self.book.notes()

    def examples(self, path: Path) -> Iterator[Example | BadRow]:
        """Yield (words, tags) of every sentence."""
        for sentence in conll.read_sentences(path, bio=self._bio):
            if isinstance(sentence, BadRow):
                yield sentence
                continue
            try:
                yield " ".join(sentence.words), [self.book.number(tag) for tag in sentence.tags]
            except ValueError as error:
                yield BadRow(str(path), sentence.line, str(error))
            except TooManyLabelsError:
                raise ValueError(
                    f"{path} has more than {MAX_LABELS:,} different tags. Does the tag stand in the last column?"
                ) from None

    def sort(self, labels: list[str]) -> list[str]:
        """Sort by code points, but O first."""
        return sorted(labels, key=lambda label: (label != conll.OUTSIDE, label))
