"""A user's own labelled files as a data set: read once as a stream, checked, cut into splits; what was decided is told.

Time is that of reading; memory is some 130 bytes a row at its peak, whatever the texts' length, since texts go to a
scratch file. Published splits stay as they are: given validation and test files are used whole, duplicates included.
"""

import dataclasses
import hashlib
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from export.contract import TEXT_CLASSIFICATION, TOKEN_CLASSIFICATION, canonical_json
from export.files import sha256_file
from pipeline.config import DataConfig, data_problems
from pipeline.data import conll
from pipeline.data.cut import TEST, TRAIN, VALIDATION
from pipeline.data.dataset import (
    DATASETS,
    SPLITS,
    Dataset,
    Split,
    load_dataset,
)
from pipeline.data.find import find_files
from pipeline.data.labels import NONE, LabelBook, some_of
from pipeline.data.lines import BadRow, file_stamp
from pipeline.data.places import place_rows
from pipeline.data.readers import ConllReader, Reader, TableReader
from pipeline.data.rows import Rows
from pipeline.data.store import Ragged, Sentences, TextWriter
from pipeline.data.tables import suffix_of
from pipeline.data.tally import MAX_BAD_ROWS, Tally
from pipeline.data.twins import find_twins

# Changes when the same files and options come to mean another data set.
_RULES = "own files 2"


class DataSource(Protocol):
    """Where a data set comes from; `sha256` is over everything that decides it, and needs no parsing."""

    @property
    def sha256(self) -> str: ...

    @property
    def task(self) -> str: ...

    def load(self, scratch: Path, *, show: bool = True) -> Dataset:
        """Load the data set.

        Args:
            scratch: a folder for texts, which must stay as long as the data set is used.
            show: whether progress is shown.

        Raises:
            ValueError: if the data is missing, damaged or can't be learned from.
        """
        ...


def open_data(config: DataConfig) -> DataSource:
    """Open own files, or the built-in data set that is named if there are none.

    Raises:
        ValueError: if the configuration is wrong, or a file is missing or of no known format.
    """
    problems = data_problems(config)
    if problems:
        raise ValueError("\n".join(problems))
    return OwnData(config) if config.train else BuiltIn(config.name)


class BuiltIn:
    """A data set that comes with Ferry, small enough for memory."""

    task = TEXT_CLASSIFICATION

    def __init__(self, name: str) -> None:
        """Load it.

        Raises:
            ValueError: if there is no such data set, or its file is damaged.
        """
        self._dataset = load_dataset(name)

    @property
    def sha256(self) -> str:
        return self._dataset.sha256

    def load(self, scratch: Path, *, show: bool = True) -> Dataset:
        """Return it; nothing is written."""
        return self._dataset


class OwnData:
    """Files for text classification (tables) or token classification (CoNLL)."""

    def __init__(self, config: DataConfig) -> None:
        """Find the files.

        Raises:
            ValueError: if one is missing or of no known format, or tables and CoNLL files are mixed.
        """
        self._config = config
        found = find_files(config.train, config.validation, config.test)
        self._files = {TRAIN: found.train, VALIDATION: found.validation, TEST: found.test}
        self._notes = found.notes
        paths = [path for files in self._files.values() for path in files]
        tagged = {suffix_of(path) in conll.SUFFIXES for path in paths}
        if len(tagged) > 1:
            raise ValueError(
                f"CoNLL files and tables can't be mixed; got {', '.join(path.name for path in paths)}. "
                "Give files of one kind: CoNLL for tagging words, tables for classifying texts."
            )
        self.task = TOKEN_CLASSIFICATION if tagged.pop() else TEXT_CLASSIFICATION
        if self.task == TOKEN_CLASSIFICATION and (config.text or config.label or config.none_label):
            raise ValueError(
                "CoNLL files have no named columns and no label for whole texts. Leave out text, label and none_label."
            )
        names = [path.name for path in paths]
        self._opened = self._stamps()
        # A file's name, and with its folder's only if another one has the same name.
        self._shown = {
            str(path): path.name if names.count(path.name) == 1 else f"{path.parent.name}/{path.name}" for path in paths
        }

    @cached_property
    def sha256(self) -> str:
        """The hash over the files' formats and bytes in order, and over the options that decide the result."""
        config = self._config
        files = {
            SPLITS[split]: [[suffix_of(path), _hash_file(path)] for path in files]
            for split, files in self._files.items()
        }
        options = {
            name: getattr(config, name)
            for name in ("text", "label", "none_label", "validation_share", "test_share", "max_bad_share")
        }
        return hashlib.sha256(canonical_json([_RULES, files, options]).encode()).hexdigest()

    @property
    def name(self) -> str:
        """The configured name or, if that is still a built-in set's, that of the first file or folder."""
        if self._config.name not in DATASETS:
            return self._config.name
        return Path(self._config.train[0]).resolve().stem or self._config.name

    def load(self, scratch: Path, *, show: bool = True) -> Dataset:
        """Read all files; texts go to a file in `scratch`, which must stay as long as the data set is used."""
        reader = self._reader()
        scratch.mkdir(parents=True, exist_ok=True)
        with TextWriter(scratch) as writer:
            rows = Rows(writer, tagged=self.task == TOKEN_CLASSIFICATION)
            tallies = [self._read(reader, rows, split, show=show) for split, files in self._files.items() if files]
            # The hash, too, may have been taken at any time since then.
            if self._stamps() != self._opened:
                raise ValueError("a data file was changed while it was read. Run again.")
            return self._finish(reader, rows, tallies)

    def _finish(self, reader: Reader, rows: Rows, tallies: list[Tally]) -> Dataset:
        """Check the labels, cut what is missing, and tell."""
        config = self._config
        if config.none_label and not reader.book.none_seen:
            raise ValueError(
                f"no row has the none_label {config.none_label!r}; the labels are {some_of(reader.book.names)}. "
                "Correct it, or leave it out."
            )
        cut_shares = {VALIDATION: config.validation_share, TEST: config.test_share}
        shares = {split: share for split, share in cut_shares.items() if not self._files[split]}
        # Checked before cutting, which needs classes to cut from.
        self._check_labels(reader.book, rows)
        places = place_rows(rows, shares=shares)
        notes = [*self._notes, *reader.notes, *(note for tally in tallies for note in tally.notes())]
        return self._assemble(reader, rows, places, notes, tallies)

    def _stamps(self) -> list[tuple[int, int, int]]:
        return [file_stamp(path) for files in self._files.values() for path in files]

    def _reader(self) -> Reader:
        paths = [path for files in self._files.values() for path in files]
        if self.task == TOKEN_CLASSIFICATION:
            return ConllReader(paths)
        config = self._config
        return TableReader(paths, text=config.text, label=config.label, none_label=config.none_label)

    def _read(self, reader: Reader, rows: Rows, split: int, *, show: bool) -> Tally:
        """Read a split's files, and refuse them if too many of their rows are bad."""
        tally = Tally(", ".join(self._shown[str(path)] for path in self._files[split]))
        examples = (example for path in self._files[split] for example in reader.examples(path))
        # None: tqdm shows a bar on terminals only.
        hidden = None if show else True
        for example in tqdm(examples, desc=f"data: {SPLITS[split]}", unit=" rows", leave=False, disable=hidden):
            tally.total += 1
            if isinstance(example, BadRow):
                tally.add_bad(dataclasses.replace(example, file=self._shown[example.file]))
            else:
                rows.add(split, *example)
        tally.check(self._config.max_bad_share, SPLITS[split])
        return tally

    def _check_labels(self, book: LabelBook, rows: Rows) -> None:
        """Refuse what can't be learned: fewer than two classes, or classes that train lacks."""
        names = book.names
        of_row = rows.splits
        if rows.tagged:
            of_row = np.repeat(of_row, np.diff(rows.ends, prepend=0))
        trained = set(np.unique(rows.labels[of_row == TRAIN]).tolist()) - {NONE}
        what = "tag" if rows.tagged else "label"
        for split in (VALIDATION, TEST):
            lacking = set(np.unique(rows.labels[of_row == split]).tolist()) - {NONE} - trained
            if lacking:
                unknown = some_of(sorted(names[label] for label in lacking))
                raise ValueError(
                    f"{SPLITS[split]} has {what}s that train lacks: {unknown}. "
                    "Add training rows for them, or take these rows out."
                )
        if len(trained) < 2:
            found = ", ".join(repr(names[label]) for label in trained) or "none"
            raise ValueError(
                f"the training rows must have at least two different {what}s; got {found}. Add another class."
            )

    def _assemble(
        self,
        reader: Reader,
        rows: Rows,
        places: npt.NDArray[np.int8],
        notes: list[str],
        tallies: list[Tally],
    ) -> Dataset:
        labels = reader.sort(reader.book.names)
        index = {label: number for number, label in enumerate(labels)}
        new = np.array([index[name] for name in reader.book.names], np.int32)
        texts = rows.writer.texts()
        # NONE, −1, stands for the last here; such rows are in no split.
        targets = new[rows.labels]
        splits, none = {}, {}
        for split, name in enumerate(SPLITS):
            own = np.flatnonzero(places == split)
            if rows.tagged:
                splits[name] = Split(Sentences(texts, own), Ragged(targets, rows.ends, own))
                continue
            classless = rows.labels[own] == NONE
            if classless.any():
                none[name] = texts.choose(own[classless])
            own = own[~classless]
            splits[name] = Split(texts.choose(own), targets[own].astype(np.int64))
        for name, chosen in splits.items():
            if not len(chosen.inputs):
                raise ValueError(f"{name} has no row with a class. Give at least one.")
        if rows.empty:
            notes.append(f"rows with an empty text, which are used: {rows.empty:,}.")
        if not rows.tagged:
            notes += _tell_single(rows, reader.book)
        notes += find_twins(rows.hashes, rows.answers, places)
        return Dataset(
            name=self.name,
            task=self.task,
            labels=labels,
            train=splits["train"],
            validation=splits["validation"],
            test=splits["test"],
            none=none,
            sha256=self.sha256,
            licence=self._config.licence,
            attribution=self._config.attribution,
            origin=self._config.origin,
            notes=tuple(notes),
            bad_rows=tuple(row for tally in tallies for row in tally.first)[:MAX_BAD_ROWS],
            rows_read=sum(tally.total for tally in tallies),
        )


def _tell_single(rows: Rows, book: LabelBook) -> list[str]:
    """Name the classes with one training row; it stays in train."""
    own = rows.labels[(rows.splits == TRAIN) & (rows.labels != NONE)]
    single = np.flatnonzero(np.bincount(own) == 1).tolist()
    if not single:
        return []
    names = some_of(sorted(book.names[label] for label in single))
    return [f"classes with a single training row, which stays in train: {len(single):,}, {names}."]


def _hash_file(path: Path) -> str:
    try:
        return sha256_file(path)
    except OSError as error:
        raise ValueError(f"{path} can't be read: {error.strerror}.") from None
