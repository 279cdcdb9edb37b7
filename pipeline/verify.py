"""Stage 3, verify: are the files in RUN/export the function that RUN/train holds? The answer goes to RUN/verify."""

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

if __name__ == "__main__":
    # Run as a file, imports would start in this folder, where `export` is another module.
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    from pipeline.cli import main

    main(["verify", *sys.argv[1:]])

import click
import numpy as np
from tqdm import tqdm

from export.artifact.layout import VERIFICATION_PAGE, VERIFIED_FILES
from export.contract import TOKENIZER_FILE
from export.errors import FerryError
from export.files import dump_json, new_folder, read_json, sha256_bytes
from export.model import CONFIG_FILE, model_limits
from export.precision_files import CALIBRATION_FILE, read_calibration
from export.proof import report
from export.proof.precision import INT8
from export.proof.prove import Effort, Proof, prove, runtime_versions
from export.proof.runtimes import OPTIONAL_FILES, Backend, missing_for_aot, select_backends
from export.proof.task_metrics import TestBatch
from export.tokenizer import Tokenizer
from pipeline.cli import DEFAULT_BUDGET, DEFAULT_DRAWS
from pipeline.data.batching import cut_batches
from pipeline.data.dataset import Split
from pipeline.data.test_split import TEST_SPLIT_FILE, read_test_split
from pipeline.run import (
    EXPORT_FOLDER,
    EXPORT_RECORD,
    TRAIN_FOLDER,
    TRAIN_RECORD,
    VERIFY_FOLDER,
    VERIFY_RECORD,
    exclusive,
    export_inputs,
    read_record,
    record_hash,
    source_hash,
)
from pipeline.tasks import TASKS

BATCH_TOKENS = 4096

T = TypeVar("T")


class RefutedError(FerryError):
    """The files were judged and are wrong."""


@dataclass(frozen=True, kw_only=True)
class Verification:
    """The result of the stage. `proof` is None if it was skipped because `record` held the same question's answer."""

    folder: Path
    record: dict[str, Any]
    proof: Proof | None

    @property
    def passed(self) -> bool:
        return bool(self.record["verdict"] == report.PASSED)

    @property
    def skipped(self) -> bool:
        return self.proof is None


@dataclass(frozen=True, kw_only=True)
class Question:
    """What verification is asked to prove.

    `providers`: what ONNX Runtime is to be proven on; the CPU always is. `effort`: how far the search goes. `compiled`:
    whether the AOTInductor build is made and judged, which takes a compiler and most of a minute. `accuracy_budget`:
    what int8 may lose of the accuracy on the test split, a fraction of all answers.
    """

    providers: Sequence[str] = ("cpu",)
    effort: Effort = field(default_factory=lambda: Effort(draws=DEFAULT_DRAWS))
    compiled: bool = True
    accuracy_budget: float = DEFAULT_BUDGET / 100


def verify(run: Path, question: Question = Question(), *, show: bool = True) -> Verification:
    """Judge the exported files of a run and write the verdict to RUN/verify, also when it is "failed".

    An earlier "passed" on the same bytes, code, data and library versions is kept if it proved as much.

    Args:
        run: the run folder.
        question: what is to be proven, and how hard it is tried.
        show: whether progress is shown.

    Raises:
        ValueError: if the run lacks an earlier stage or holds a stale one, a provider is unknown, or CUDA is asked for
            and can't run.
        LockedError: if another process works in the run folder.
    """
    with exclusive(run):
        return _verify(run, question, show=show)


def _verify(run: Path, question: Question, *, show: bool) -> Verification:
    select_backends(question.providers)
    trained = read_record(run, TRAIN_FOLDER, TRAIN_RECORD, stage="train")
    exported = read_record(run, EXPORT_FOLDER, EXPORT_RECORD, stage="export")
    source = source_hash()
    if exported["inputs"] != export_inputs(trained["files"], exported["inputs"].get("asked", {})):
        raise ValueError(
            f"{run / EXPORT_FOLDER} was exported from another checkpoint or by other code than there is now. "
            f"Run `ferry export --run {run}` again."
        )
    hashes = {TRAIN_FOLDER: trained["files"], EXPORT_FOLDER: exported["files"]}
    files = _read_files(run, hashes)
    asked = {
        "inputs": {
            "files": {name: sha256_bytes(data) for name, data in files.items()},
            "test_split": trained["files"][TEST_SPLIT_FILE],
            "calibration": trained["files"][CALIBRATION_FILE],
            "record": record_hash(trained),
            "source": source,
        },
        "versions": runtime_versions(),
    }
    folder = run / VERIFY_FOLDER
    earlier = _earlier_answer(folder, asked, question)
    if earlier is not None:
        return Verification(folder=folder, record=earlier, proof=None)

    backends, skipped = _leave_out(select_backends(question.providers, optional=list(files)), question)
    proof = prove(
        files.__getitem__,
        _test_batches(files, read_test_split(run / TRAIN_FOLDER / TEST_SPLIT_FILE)),
        backends=backends,
        skipped=skipped,
        effort=question.effort,
        recorded_accuracy=trained["metrics"]["test"]["accuracy"],
        track=_Progress(show),
        int8_loss=question.accuracy_budget,
        calibration=read_calibration((run / TRAIN_FOLDER / CALIBRATION_FILE).read_bytes()),
    )
    record = {**report.document(proof), **asked, "name": trained["name"]}
    with new_folder(folder, replace=True, record=VERIFY_RECORD) as work:
        (work / VERIFY_RECORD).write_text(dump_json(record))
        (work / VERIFICATION_PAGE).write_text(report.page(record), "utf-8")
    return Verification(folder=folder, record=record, proof=proof)


class _Progress:
    """Shows a bar on a terminal while items are handed on."""

    def __init__(self, show: bool) -> None:
        # None: tqdm shows a bar on terminals only.
        self._disable = None if show else True

    def __call__(self, items: Sequence[T], label: str, /) -> Iterable[T]:
        bar: Iterable[T] = tqdm(items, desc=f"verify: {label}", leave=False, disable=self._disable)
        return bar


def _read_files(run: Path, hashes: dict[str, dict[str, str]]) -> dict[str, bytes]:
    """Read every file that is judged once, so that the bytes that are judged are the bytes that were hashed."""
    files = {}
    for folder, own in hashes.items():
        for name in own.keys() & {*VERIFIED_FILES, *OPTIONAL_FILES}:
            data = (run / folder / name).read_bytes()
            if sha256_bytes(data) != own[name]:
                raise ValueError(f"{run / folder / name} was changed while it was read. Verify again.")
            files[name] = data
    return files


def _leave_out(backends: list[Backend], question: Question) -> tuple[list[Backend], dict[str, str]]:
    """Return the backends that can be run and are wanted, and why the others are not run."""
    missing = missing_for_aot() if question.compiled else ["left out, as was asked"]
    skipped = {backend.name: "; ".join(missing) for backend in backends if backend.compiled and missing}
    return [backend for backend in backends if backend.name not in skipped], skipped


def _earlier_answer(folder: Path, asked: dict[str, Any], question: Question) -> dict[str, Any] | None:
    """Return an earlier record that passed, has its page, and answers at least what is asked now."""
    if not (folder / VERIFICATION_PAGE).is_file():
        return None
    try:
        record: dict[str, Any] = read_json(folder / VERIFY_RECORD)
        same = all(record.get(key) == value for key, value in asked.items()) and record["verdict"] == report.PASSED
        proven = all(record["providers"][name] == report.VERIFIED for name in question.providers)
        searched = record["effort"] == asdict(question.effort)
        compiled = not question.compiled or not record["skipped"] or bool(missing_for_aot())
        spent = [part["accuracy_budget"] for part in record["test_split"]["backends"] if part["precision"] == INT8]
        frugal = all(budget <= question.accuracy_budget for budget in spent)
    except (ValueError, KeyError, TypeError, AttributeError):
        # Missing or damaged, it answers nothing; it is written anew.
        return None
    return record if same and proven and searched and compiled and frugal else None


def _test_batches(files: dict[str, bytes], split: Split) -> list[TestBatch]:
    """Cut the test split into batches of similar length, from the shortest to the longest."""
    config = json.loads(files[CONFIG_FILE])
    tokenizer = Tokenizer(files[TOKENIZER_FILE], max_length=model_limits(config).max_length)
    examples = TASKS[config["task"]].encode(tokenizer, split)
    rows = np.argsort(examples.lengths, kind="stable").tolist()
    batches = []
    for batch in cut_batches(rows, examples.lengths.tolist(), batch_tokens=BATCH_TOKENS):
        input_ids, attention_mask, labels = examples.batch(batch)
        batches.append(TestBatch(input_ids=input_ids, attention_mask=attention_mask, labels=labels))
    return batches


def run_stage(run: Path, question: Question = Question()) -> None:
    """Run the stage and tell a person what came of it.

    Raises:
        RefutedError: if the files are wrong; the report was printed.
    """
    verification = verify(run, question)
    if verification.proof is None:
        click.echo(f"verify: {verification.folder} is current")
    else:
        click.echo(report.text(verification.proof))
        click.echo(f"Report: {verification.folder / VERIFICATION_PAGE}")
    if not verification.passed:
        failures = len(verification.record["failures"])
        raise RefutedError(f"{failures} failures; all of them are in {verification.folder / VERIFY_RECORD}.")
