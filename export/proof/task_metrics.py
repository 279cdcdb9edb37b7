"""The task itself: the whole test split on every backend, real texts with the length they have.

An answer is a row's, or a token's that begins a word. Labels must equal eager's wherever eager's best two logits lie
further apart than two backends within the limit can bring together, which is twice the limit. Answers closer than that
are counted: there rounding decides.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from export.contract import NO_ANSWER, Limits
from export.proof.parity import Failure, Track, answer, backend_limit, no_progress, whole
from export.proof.runtimes import EAGER, Array, BackendError, Ids, Runtime
from export.proof.tolerance import Tolerance, derive_tolerance, distance, find_fault


@dataclass(frozen=True, kw_only=True)
class TestBatch:
    """A batch of the test split: ids and mask (batch, sequence) int64, labels int64.

    Labels are (batch,), or (batch, sequence) for a task with answers for tokens, NO_ANSWER where none is asked.
    """

    __test__ = False  # the name is no test's

    input_ids: Ids
    attention_mask: Ids
    labels: Ids


@dataclass(frozen=True, kw_only=True)
class BackendTask:
    """What the test split says of one backend. `accuracy` is a fraction of all answers; errors are in logits."""

    backend: str
    accuracy: float
    equal_labels: int
    max_error: float
    limit: float
    failures: tuple[Failure, ...]


@dataclass(frozen=True, kw_only=True)
class TaskMetrics:
    """What the test split says of all backends; `undecided` answers lie within twice the limit."""

    rows: int
    answers: int
    undecided: int
    tolerance: Tolerance
    backends: tuple[BackendTask, ...]


def check_task(
    reference: Runtime,
    runtimes: Sequence[Runtime],
    batches: Sequence[TestBatch],
    limits: Limits,
    track: Track = no_progress,
) -> TaskMetrics:
    """Run the test split on all runtimes; judge labels against eager and logits against the reference.

    Raises:
        BackendError: if the reference or eager, which define the function, can't run a batch.
    """
    expected = []
    answers: dict[str, list[Array | BackendError]] = {runtime.name: [] for runtime in runtimes}
    for batch in track(batches, "test split"):
        expected.append(reference.run(batch.input_ids, batch.attention_mask))
        for runtime in runtimes:
            answers[runtime.name].append(answer(runtime, batch.input_ids, batch.attention_mask, limits))
    eager = whole(answers[EAGER])
    tolerance = derive_tolerance(eager, expected)
    asked = [batch.labels != NO_ANSWER for batch in batches]
    decided = [_margins(output) > 2 * tolerance.limit for output in eager]
    return TaskMetrics(
        rows=sum(len(batch.labels) for batch in batches),
        answers=sum(int(places.sum()) for places in asked),
        undecided=sum(int((places & ~clear).sum()) for places, clear in zip(asked, decided, strict=True)),
        tolerance=tolerance,
        backends=tuple(_judge(name, answers[name], batches, expected, eager, decided, tolerance) for name in answers),
    )


def _margins(logits: Array) -> Array:
    """Return by how much each best logit leads the second; what is not finite leads by nothing."""
    best_two = np.sort(logits, axis=-1)[..., -2:]
    margins: Array = best_two[..., -1] - best_two[..., 0]
    return np.nan_to_num(margins, nan=0.0, posinf=0.0)


def _judge(
    backend: str,
    answers: Sequence[Array | BackendError],
    batches: Sequence[TestBatch],
    expected: Sequence[Array],
    eager: Sequence[Array],
    decided: Sequence[Array],
    tolerance: Tolerance,
) -> BackendTask:
    limit = backend_limit(backend, tolerance)
    failures = []
    correct = equal = row = asked = 0
    max_error = 0.0
    for output, batch, wanted, eager_output, clear in zip(answers, batches, expected, eager, decided, strict=True):
        first, row = row, row + len(batch.labels)
        places = batch.labels != NO_ANSWER
        asked += int(places.sum())
        where = f"test rows {first} to {row - 1} in order of length"
        fault = str(output) if isinstance(output, BackendError) else find_fault(output, wanted, limit)
        if fault:
            failures.append(Failure(backend=backend, where=where, reason=fault))
        if isinstance(output, BackendError) or output.shape != wanted.shape:
            continue
        max_error = max(max_error, distance(output, wanted))
        labels, eager_labels = output.argmax(axis=-1), eager_output.argmax(axis=-1)
        correct += int((labels == batch.labels).sum())
        equal += int(((labels == eager_labels) & places).sum())
        for place in zip(*np.nonzero((labels != eager_labels) & clear & places), strict=True):
            reason = f"label {labels[place]}, where eager has {eager_labels[place]} by more than twice the limit"
            token = "".join(f", token {column}" for column in place[1:])
            failures.append(Failure(backend=backend, where=f"test row {first + place[0]}{token}", reason=reason))
    return BackendTask(
        backend=backend,
        accuracy=correct / asked,
        equal_labels=equal,
        max_error=max_error,
        limit=limit,
        failures=tuple(failures),
    )
