"""The whole proof of one model: structure, parity on the grid, invariances, the test split, placement."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import onnx
import onnxruntime as ort
import torch

from export.model import CONFIG_FILE, model_limits
from export.onnx_export import ONNX_FILE
from export.precision_files import OPTIONAL_FILES, Batches
from export.proof.cases import SEED, build_grid
from export.proof.checks import CheckResult, Files, check_files
from export.proof.explain import Counterexample, explain_failures
from export.proof.invariance import Invariance, check_invariance
from export.proof.parity import BackendParity, Failure, Parity, Track, check_parity, no_progress
from export.proof.placement import PROVIDERS, Placement
from export.proof.precision_table import PrecisionRow, precision_table
from export.proof.runtimes import EAGER, Backend, BackendError, Ids, Read, Runtime, load_reference, one_torch_thread
from export.proof.scaled import SCALES, load_scaled
from export.proof.search import BackendSearch, Search, search
from export.proof.task_metrics import BackendTask, TaskMetrics, TestBatch, check_task

# Training may have rounded the accuracy that it recorded.
_RECORD_ROUNDING = 5e-5


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How far the search goes: how many inputs are drawn for the model as it is, and when it stops all the same.

    A quarter as many are drawn for each of SCALES. `seconds` is for each search; None sets no end.
    """

    draws: int = 0
    seconds: float | None = None
    seed: int = SEED


@dataclass(frozen=True, kw_only=True)
class Proof:
    """Everything that was found; `parity` and `task` are None where eager itself could not run.

    `searches` holds one for the model as it is and one for each of SCALES. `skipped` says of backends that were not run
    why not. `failures` holds what no other part holds: files that did not load, records that do not fit.
    `precisions` holds a row for each ONNX file, `counterexamples` the smallest failing input of each backend that
    failed on one.
    """

    providers: tuple[str, ...]
    versions: Mapping[str, str]
    checks: tuple[CheckResult, ...]
    parity: Parity | None
    invariances: tuple[Invariance, ...]
    searches: tuple[Search, ...]
    task: TaskMetrics | None
    placements: Mapping[str, Placement]
    skipped: Mapping[str, str]
    effort: Effort
    failures: tuple[Failure, ...]
    precisions: tuple[PrecisionRow, ...] = ()
    counterexamples: tuple[Counterexample, ...] = ()

    @property
    def all_failures(self) -> list[Failure]:
        """Every failure of every part; the proof holds if there is none."""
        parts = _parts(self.parity, self.invariances, self.searches, self.task)
        return [
            *self.failures,
            *(
                Failure(backend="files", where=check.name, reason=problem)
                for check in self.checks
                # What could not be judged is not proven.
                for problem in (*check.problems, *([check.note] if check.note else []))
            ),
            *(
                Failure(backend=name, where="placement", reason=fault)
                for name, placement in self.placements.items()
                for fault in placement.faults
            ),
            *(failure for part in parts for failure in part.failures),
        ]

    @property
    def holds(self) -> bool:
        return not self.all_failures


def _parts(
    parity: Parity | None, invariances: Sequence[Invariance], searches: Sequence[Search], task: TaskMetrics | None
) -> list[BackendParity | Invariance | BackendSearch | BackendTask]:
    """Return everything that was asked of backends and has failures of its own."""
    return [
        *(parity.backends if parity else ()),
        *invariances,
        *(part for search in searches for part in search.backends),
        *(task.backends if task else ()),
    ]


def runtime_versions() -> dict[str, str]:
    """Return the versions of the libraries that a proof depends on."""
    return {
        "numpy": np.__version__,
        "onnx": onnx.__version__,
        "onnxruntime": ort.__version__,
        "torch": torch.__version__,
    }


def prove(
    read: Read,
    batches: Sequence[TestBatch],
    *,
    backends: Sequence[Backend],
    recorded_accuracy: float,
    effort: Effort = Effort(),
    skipped: Mapping[str, str] | None = None,
    track: Track = no_progress,
    int8_loss: float | None = None,
    calibration: Batches | None = None,
) -> Proof:
    """Judge the files of a model.

    Args:
        read: gives the bytes of a file by its name.
        batches: the test split.
        backends: the rows of the table to run, from `select_backends`; eager is among them.
        recorded_accuracy: what training said of the test split, a fraction of its answers.
        effort: how far the search goes.
        skipped: backends that are not run, and why; it is only told.
        track: shows progress.
        int8_loss: see `check_task`.
        calibration: the rows that int8 was calibrated on, where they are at hand.
    """
    with one_torch_thread():
        # First, for what a compiler builds is built meanwhile.
        loading, failures = _load(backends, read)
        # Kept to the end, for what the checks read is what runs.
        optional = [name for name in OPTIONAL_FILES if any(backend.file == name for backend in backends)]
        files = Files(read, optional=optional, calibration=calibration)
        checks = tuple(check_files(files))
        runtimes = _wait(loading, failures)
        function = _Function()
        try:
            reference = load_reference(read)
            if any(runtime.name == EAGER for runtime in runtimes):
                _judge_function(function, read, reference, runtimes, batches, effort, track, int8_loss)
                assert function.task is not None
                failures += _check_record(function.task, recorded_accuracy)
        except BackendError as error:
            failures.append(Failure(backend=EAGER, where="the function that is to be proven", reason=str(error)))
        return Proof(
            providers=tuple(name for name in PROVIDERS if any(backend.provider == name for backend in backends)),
            versions=runtime_versions(),
            checks=checks,
            parity=function.parity,
            invariances=tuple(function.invariances),
            searches=tuple(function.searches),
            task=function.task,
            placements={runtime.name: runtime.placement for runtime in runtimes if runtime.placement is not None},
            skipped=dict(skipped or {}),
            effort=effort,
            failures=tuple(failures),
            precisions=_precisions(read, optional, function),
            counterexamples=function.counterexamples,
        )


@dataclass
class _Function:
    """What is found part by part; where eager can't run, the parts after that stay empty."""

    parity: Parity | None = None
    invariances: list[Invariance] = field(default_factory=list)
    searches: list[Search] = field(default_factory=list)
    task: TaskMetrics | None = None
    counterexamples: tuple[Counterexample, ...] = ()


def _judge_function(
    found: _Function,
    read: Read,
    reference: Runtime,
    runtimes: Sequence[Runtime],
    batches: Sequence[TestBatch],
    effort: Effort,
    track: Track,
    int8_loss: float | None,
) -> None:
    limits = model_limits(json.loads(read(CONFIG_FILE)))
    found.parity = check_parity(reference, runtimes, build_grid(limits), limits, track)
    found.invariances = check_invariance(runtimes, limits, found.parity.tolerances, track=track)
    if effort.draws:
        texts = _rows(batches)
        grid = found.parity.tolerances
        draws = partial(search, limits=limits, texts=texts, seconds=effort.seconds, seed=effort.seed, track=track)
        found.searches.append(draws(reference, runtimes, count=effort.draws, tolerances=grid))
        for scale in SCALES:
            found.searches.append(draws(*load_scaled(read, scale), count=-(-effort.draws // 4), scale=scale))
    found.task = check_task(reference, runtimes, batches, limits, track, int8_loss=int8_loss)
    parts = _parts(found.parity, found.invariances, found.searches, found.task)
    failures = [failure for part in parts for failure in part.failures]
    found.counterexamples = explain_failures(
        read, reference, runtimes, failures, found.parity.tolerances, limits, track
    )


def _precisions(read: Read, optional: Sequence[str], found: _Function) -> tuple[PrecisionRow, ...]:
    """Lay the ONNX files side by side; where eager can't run there is nothing to tell."""
    if found.task is None:
        return ()
    sizes = {name: len(read(name)) for name in (ONNX_FILE, *optional)}
    return tuple(precision_table(sizes, found.task, found.invariances))


def _rows(batches: Sequence[TestBatch]) -> list[Ids]:
    """Return the ids of each text of the test split, without padding."""
    rows = [
        row[kept == 1] for batch in batches for row, kept in zip(batch.input_ids, batch.attention_mask, strict=True)
    ]
    return [row for row in rows if row.size]


def _load(backends: Sequence[Backend], read: Read) -> tuple[list[Runtime], list[Failure]]:
    """Load what can be loaded, in the order of the table; what takes a compiler begins first."""
    loaded: dict[str, Runtime] = {}
    failures = []
    for backend in sorted(backends, key=lambda backend: not backend.compiled):
        try:
            loaded[backend.name] = backend.load(read)
        except BackendError as error:
            failures.append(_not_loaded(backend.name, error))
    return [loaded[backend.name] for backend in backends if backend.name in loaded], failures


def _wait(loading: Sequence[Runtime], failures: list[Failure]) -> list[Runtime]:
    """Return what was loaded in the end, and add what was not to the failures."""
    runtimes = []
    for runtime in loading:
        try:
            runtime.wait()
            runtimes.append(runtime)
        except BackendError as error:
            failures.append(_not_loaded(runtime.name, error))
    return runtimes


def _not_loaded(name: str, error: BackendError) -> Failure:
    return Failure(backend=name, where="loading", reason=str(error))


def _check_record(task: TaskMetrics, recorded_accuracy: float) -> list[Failure]:
    """Compare eager's accuracy with what training recorded; only answers that rounding decides may differ."""
    accuracy = next(backend.accuracy for backend in task.backends if backend.backend == EAGER)
    if abs(accuracy - recorded_accuracy) <= task.undecided / task.answers + _RECORD_ROUNDING:
        return []
    reason = f"accuracy {accuracy:.4f}, where training recorded {recorded_accuracy:.4f}"
    return [Failure(backend=EAGER, where="test split", reason=reason)]
