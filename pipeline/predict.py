"""Batch scoring: every row of a file answered by an artifact, in order, in bounded memory, and resumable.

Answers are collected as JSON lines in a hidden folder beside the output, chunk by chunk, with a note of how many rows
are done; a process that is killed at any moment loses at most a chunk. Only the finished file gets the output's name.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import click
import pyarrow.parquet as pq
from tqdm import tqdm

from export.artifact.layout import MANIFEST_FILE
from export.artifact.load import Classifier, Prediction, Tagger, open_artifact, open_model
from export.contract import canonical_json
from export.errors import FerryError
from export.files import flush_to_disk, sha256_bytes, sha256_file
from pipeline.data.columns import choose_text
from pipeline.data.lines import BadRow, file_stamp
from pipeline.data.tables import Table, open_table, suffix_of
from pipeline.data.writers import Kind, choose_writer
from pipeline.lock import LockedError, locked

# Rows between two notes of how far the work is; within them texts are sorted by length.
CHUNK_ROWS = 2048
BATCH_ROWS = 32

_ANSWERS, _STATE = "answers.jsonl", "state.json"
_TOLD_BAD_ROWS = 10
# The longest name that common file systems allow, in bytes.
_LONGEST_NAME = 255

_LABEL, _PROBABILITY, _WORDS = "predicted_label", "probability", "predicted_words"
_OWN_COLUMNS = {"line", "text", _LABEL, _PROBABILITY, _WORDS, "dropped", "error"}


class ChangedError(ValueError):
    """The input is not what it was when reading began."""


@dataclass(frozen=True)
class Scored:
    """How many rows were answered, how many could not be, and how many a process before this one had done."""

    rows: int
    bad: int
    resumed: int


def predict_file(
    artifact: Path,
    source: Path,
    output: Path,
    *,
    text: str = "",
    keep: tuple[str, ...] = (),
    runtime: str = "onnxruntime",
    max_bad_share: float = 0.01,
    overwrite: bool = False,
    show: bool = True,
) -> Scored:
    """Answer every row of a file and write the answers to another.

    The output has a row for each row of the input, in order: `line`, the kept columns, `text`, the answer
    (`predicted_label` and `probability`, or `predicted_words`), `dropped`, and `error`, the reason why a row could not
    be answered.

    Args:
        artifact: the artifact's folder or tar.
        source: CSV, TSV, JSONL or Parquet.
        output: CSV, TSV, JSONL or Parquet, by the end of its name.
        text: the column of the texts; empty: guessed.
        keep: columns of the input that the output repeats.
        runtime: which of the artifact's models answers.
        max_bad_share: the share of rows that may be bad.
        overwrite: whether an existing output is replaced, once the new one is complete.
        show: whether progress is shown.

    Raises:
        ValueError: if a file or column is missing or of an unknown format, too many rows are bad, the output exists
            and may not be replaced, or the input was changed while it was read.
        ArtifactError: if the artifact is not sound.
        LockedError: if another process writes this output.
    """
    write = choose_writer(output)
    # A link stays, and what it names is written.
    target = Path(os.path.realpath(output))
    _refuse_output(output, target, source, overwrite=overwrite)
    if not 0 <= max_bad_share <= 1:
        raise ValueError(f"--max-bad-share must lie in 0 … 1; got {max_bad_share}.")
    stamp = file_stamp(source)
    table = open_table(source)
    columns = _columns(table, text, keep)
    if show and not text and len(table.columns) > 1:
        click.echo(f"predict: guessed column: the text is {columns['text']!r}.", err=True)
    opened = open_artifact(artifact)
    model = open_model(opened, runtime)
    identity = {
        "input": sha256_file(source),
        "artifact": sha256_bytes(opened.source.read(MANIFEST_FILE)),
        "columns": columns,
        "runtime": runtime,
    }
    folder = target.with_name(_partial_name(target.name))

    def check_input() -> None:
        if file_stamp(source) != stamp:
            raise ChangedError(f"{source} was changed while it was read. Run again.")

    check_input()
    with _emptied(folder), _locked(folder, output), _Work(folder, identity) as work:
        scored = _answer(table, columns, model, work, check_input, total=_count_rows(source), show=show)
        _refuse_bad(scored, work, source, max_bad_share)
        finished = folder / "finished"
        write(finished, work.answers(), _output_columns(columns, words=isinstance(model, Tagger)))
        flush_to_disk(finished)
        os.replace(finished, target)
        flush_to_disk(target.parent)
        work.remove()
    return scored


@contextmanager
def _emptied(folder: Path) -> Iterator[None]:
    """Remove a folder behind the block if nothing is left in it."""
    try:
        yield
    finally:
        with suppress(OSError):
            folder.rmdir()


@contextmanager
def _locked(folder: Path, output: Path) -> Iterator[None]:
    try:
        with locked(folder):
            yield
    except LockedError as error:
        raise LockedError(
            f"{error.holder} is writing {output}. Wait until it has ended, or name another --output.",
            holder=error.holder,
        ) from None


def _partial_name(name: str) -> str:
    """Return the name of the hidden folder beside an output; a hash stands for a name that would become too long."""
    partial = f".{name}.partial"
    return partial if len(os.fsencode(partial)) <= _LONGEST_NAME else f".{sha256_bytes(os.fsencode(name))[:32]}.partial"


def _refuse_output(output: Path, target: Path, source: Path, *, overwrite: bool) -> None:
    if target.is_dir():
        raise ValueError(f"{output} must be a file; it is a folder. Name a file in it.")
    if not target.parent.is_dir():
        raise ValueError(f"{output.parent} is not a folder. Make it first.")
    if target.exists() and source.exists() and target.samefile(source):
        raise ValueError(f"{output} is the input, which is never replaced. Name another --output.")
    if target.exists() and not overwrite:
        raise ValueError(f"{output} exists and is not replaced. Name another, or give --overwrite.")


class _Work:
    """The answers so far: a note beside them says how many of their bytes are whole, with the hash of those bytes."""

    def __init__(self, folder: Path, identity: dict[str, Any]) -> None:
        """Take up what a process before this one left, if it answers the same question; else begin anew."""
        self._answers, self._state = folder / _ANSWERS, folder / _STATE
        self._identity = identity
        self._hash = hashlib.sha256()
        self.rows = self.bad = 0
        size = self._take_up()
        self._file = self._answers.open("ab")
        self._file.truncate(size)

    def _take_up(self) -> int:
        """Count the answers that are there, and return how many bytes of them are whole and unchanged."""
        try:
            state = json.loads(self._state.read_text("utf-8"))
            if state["identity"] != self._identity:
                return 0
            with self._answers.open("rb") as file:
                while file.tell() < state["bytes"] and (line := file.readline()):
                    self._count([json.loads(line)])
                    self._hash.update(line)
                if [file.tell(), self._hash.hexdigest()] == [state["bytes"], state["sha256"]]:
                    return file.tell()
        except (OSError, ValueError, KeyError, TypeError):
            # Missing or damaged, it says nothing.
            pass
        self.rows = self.bad = 0
        self._hash = hashlib.sha256()
        return 0

    def _count(self, answers: list[dict[str, Any]]) -> None:
        self.rows += len(answers)
        self.bad += sum(answer["error"] is not None for answer in answers)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        # What nobody can take up goes.
        if not self.rows or isinstance(error, ChangedError):
            self.remove()

    def add(self, answers: list[dict[str, Any]]) -> None:
        """Append the answers of a chunk and note that they are done."""
        data = "".join(json.dumps(answer) + "\n" for answer in answers).encode()
        self._file.write(data)
        self._file.flush()
        os.fsync(self._file.fileno())
        self._hash.update(data)
        self._count(answers)
        state = {"identity": self._identity, "bytes": self._file.tell(), "sha256": self._hash.hexdigest()}
        partial = self._state.with_suffix(".new")
        partial.write_text(canonical_json(state))
        flush_to_disk(partial)
        os.replace(partial, self._state)

    def answers(self) -> Iterator[dict[str, Any]]:
        """Yield every answer in order."""
        with self._answers.open("rb") as file:
            for line in file:
                yield json.loads(line)

    def remove(self) -> None:
        """Remove the folder's files."""
        for path in (self._answers, self._state, self._state.with_suffix(".new")):
            path.unlink(missing_ok=True)


def _columns(table: Table, text: str, keep: tuple[str, ...]) -> dict[str, Any]:
    chosen = choose_text(table.path, table.columns, text)
    missing = [name for name in keep if name not in table.columns]
    if missing:
        raise ValueError(
            f"{table.path} has no column {missing[0]!r} to keep; its columns are {', '.join(map(repr, table.columns))}."
        )
    taken = sorted(_OWN_COLUMNS & set(keep))
    if taken:
        raise ValueError(f"--keep {taken[0]} would stand beside the output's own column {taken[0]}. Rename it.")
    return {"text": chosen, "keep": list(dict.fromkeys(keep))}


def _output_columns(columns: dict[str, Any], *, words: bool) -> dict[str, Kind]:
    answer: dict[str, Kind] = {_WORDS: "words"} if words else {_LABEL: "text", _PROBABILITY: "number"}
    kept: dict[str, Kind] = dict.fromkeys(columns["keep"], "text")
    return {"line": "whole number", **kept, "text": "text", **answer, "dropped": "whole number", "error": "text"}


def _answer(
    table: Table,
    columns: dict[str, Any],
    model: Classifier | Tagger,
    work: _Work,
    check_input: Callable[[], None],
    *,
    total: int,
    show: bool,
) -> Scored:
    """Answer what is not yet answered, chunk by chunk; nothing is kept that was read of a changed input."""
    resumed = work.rows
    if resumed and show:
        click.echo(f"predict: going on behind row {resumed:,}", err=True)
    rows = table.rows(list(dict.fromkeys([columns["text"], *columns["keep"]])))
    rest = islice(rows, resumed, None)
    # None: tqdm shows a bar on terminals only.
    with tqdm(total=total, initial=resumed, desc="predict", unit=" rows", disable=None if show else True) as bar:
        while chunk := list(islice(rest, CHUNK_ROWS)):
            check_input()
            work.add(_answer_chunk(chunk, columns, model))
            bar.update(len(chunk))
    check_input()
    return Scored(rows=work.rows, bad=work.bad, resumed=resumed)


def _answer_chunk(chunk: list[Any], columns: dict[str, Any], model: Classifier | Tagger) -> list[dict[str, Any]]:
    """Answer rows in batches of similar length, and put the answers in the rows' order."""
    empty = dict.fromkeys([_WORDS] if isinstance(model, Tagger) else [_LABEL, _PROBABILITY])
    answers: list[dict[str, Any]] = []
    good = []
    for place, row in enumerate(chunk):
        if isinstance(row, BadRow):
            kept: dict[str, Any] = dict.fromkeys(columns["keep"])
            answers.append({"line": row.line, **kept, "text": None, **empty, "dropped": None, "error": row.reason})
        else:
            kept = {name: row.values[name] for name in columns["keep"]}
            text = row.values[columns["text"]]
            answers.append({"line": row.line, **kept, "text": text, **empty, "dropped": None, "error": None})
            good.append(place)
    # Characters are a good enough guess at tokens.
    good.sort(key=lambda place: len(answers[place]["text"]))
    for start in range(0, len(good), BATCH_ROWS):
        places = good[start : start + BATCH_ROWS]
        batch = model.predict([answers[place]["text"] for place in places])
        for place, answer in zip(places, batch, strict=True):
            answers[place] |= _fields(answer)
    return answers


def _fields(answer: Any) -> dict[str, Any]:
    if isinstance(answer, Prediction):
        return {_LABEL: answer.label, _PROBABILITY: answer.probability, "dropped": answer.dropped}
    return {_WORDS: [vars(word) for word in answer.words], "dropped": answer.dropped}


def _count_rows(source: Path) -> int:
    """Return about how many rows a file has, for the progress bar; exact where no cell holds a line break."""
    if suffix_of(source) == ".parquet":
        return int(pq.read_metadata(source).num_rows)
    if source.suffix.lower() == ".gz":
        return 0
    with source.open("rb") as file:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(1 << 20), b""))


def _refuse_bad(scored: Scored, work: _Work, source: Path, max_bad_share: float) -> None:
    """Refuse an input without rows, or with too many bad ones; what was answered goes."""
    if not scored.rows:
        work.remove()
        raise ValueError(f"{source} has no rows.")
    if scored.bad <= max_bad_share * scored.rows:
        return
    bad = (answer for answer in work.answers() if answer["error"] is not None)
    told = "\n".join(f"  line {answer['line']}: {answer['error']}" for answer in islice(bad, _TOLD_BAD_ROWS))
    work.remove()
    raise ValueError(
        f"{scored.bad:,} of the {scored.rows:,} rows of {source.name} can't be answered; --max-bad-share allows "
        f"{max_bad_share:.2%}. The first of them:\n{told}\nMend the file, or raise --max-bad-share."
    )


def run_stage(artifact: Path, source: Path, output: Path, **options: Any) -> None:
    """Score a file and tell a person what came of it.

    Raises:
        FerryError: if the disk is full.
    """
    try:
        scored = predict_file(artifact, source, output, **options)
    except OSError as error:
        raise FerryError(
            f"{error.filename or output}: {error.strerror}. What is done is kept; run the same command again to go on."
        ) from error
    click.echo(f"predict: {output} holds {scored.rows:,} rows", nl=False)
    click.echo(f", {scored.bad:,} of them without an answer; the column error says why" if scored.bad else "")
