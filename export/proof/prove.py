"""The whole proof of one model: structure, parity on the grid, invariances, the test split, placement."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
import onnxruntime as ort
import torch

from export.model import CONFIG_FILE, model_limits
from export.proof.cases import build_grid
from export.proof.graph_checks import CheckResult, check_files
from export.proof.invariance import Invariance, check_invariance
from export.proof.parity import BackendParity, Failure, Parity, Track, check_parity, no_progress
from export.proof.placement import PROVIDERS, Placement
from export.proof.runtimes import EAGER, Backend, BackendError, Read, Runtime, load_reference, one_torch_thread
from export.proof.task_metrics import BackendTask, TaskMetrics, TestBatch, check_task

# Training may have rounded the accuracy that it recorded.
_RECORD_ROUNDING = 5e-5


@dataclass(frozen=True, kw_only=True)
class Proof:
    """Everything that was found; `parity` and `task` are None where eager itself could not run.

    `failures` holds what no other part holds: files that did not load, records that do not fit.
    """

    providers: tuple[str, ...]
    versions: Mapping[str, str]
    checks: tuple[CheckResult, ...]
    parity: Parity | None
    invariances: tuple[Invariance, ...]
    task: TaskMetrics | None
    placements: Mapping[str, Placement]
    failures: tuple[Failure, ...]

    @property
    def all_failures(self) -> list[Failure]:
        """Every failure of every part; the proof holds if there is none."""
        parts: list[BackendParity | Invariance | BackendTask] = [
            *(self.parity.backends if self.parity else ()),
            *self.invariances,
            *(self.task.backends if self.task else ()),
        ]
        return [
            *self.failures,
            *(
                Failure(backend="files", where=check.name, reason=problem)
                for check in self.checks
                for problem in check.problems
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
    track: Track = no_progress,
) -> Proof:
    """Judge the files of a model.

    Args:
        read: gives the bytes of a file by its name.
        batches: the test split.
        backends: the rows of the table to run, from `select_backends`; eager is among them.
        recorded_accuracy: what training said of the test split, a fraction of its answers.
        track: shows progress.
    """
    with one_torch_thread():
        return _prove(read, batches, backends, recorded_accuracy, track)


def _prove(
    read: Read, batches: Sequence[TestBatch], backends: Sequence[Backend], recorded_accuracy: float, track: Track
) -> Proof:
    checks = tuple(check_files(read))
    runtimes, failures = _load(backends, read)
    parity: Parity | None = None
    invariances: list[Invariance] = []
    task: TaskMetrics | None = None
    try:
        reference = load_reference(read)
        if any(runtime.name == EAGER for runtime in runtimes):
            limits = model_limits(json.loads(read(CONFIG_FILE)))
            parity = check_parity(reference, runtimes, build_grid(limits), limits, track)
            invariances = check_invariance(runtimes, limits, parity.tolerance.limit, track=track)
            task = check_task(reference, runtimes, batches, limits, track)
            failures += _check_record(task, recorded_accuracy)
    except BackendError as error:
        failures.append(Failure(backend=EAGER, where="the function that is to be proven", reason=str(error)))
    placements = {runtime.name: runtime.placement for runtime in runtimes if runtime.placement is not None}
    return Proof(
        providers=tuple(name for name in PROVIDERS if any(backend.provider == name for backend in backends)),
        versions=runtime_versions(),
        checks=checks,
        parity=parity,
        invariances=tuple(invariances),
        task=task,
        placements=placements,
        failures=tuple(failures),
    )


def _load(backends: Sequence[Backend], read: Read) -> tuple[list[Runtime], list[Failure]]:
    runtimes, failures = [], []
    for backend in backends:
        try:
            runtimes.append(backend.load(read))
        except BackendError as error:
            failures.append(Failure(backend=backend.name, where="loading", reason=str(error)))
    return runtimes, failures


def _check_record(task: TaskMetrics, recorded_accuracy: float) -> list[Failure]:
    """Compare eager's accuracy with what training recorded; only answers that rounding decides may differ."""
    accuracy = next(backend.accuracy for backend in task.backends if backend.backend == EAGER)
    if abs(accuracy - recorded_accuracy) <= task.undecided / task.answers + _RECORD_ROUNDING:
        return []
    reason = f"accuracy {accuracy:.4f}, where training recorded {recorded_accuracy:.4f}"
    return [Failure(backend=EAGER, where="test split", reason=reason)]
