"""The task itself: the whole test split on every backend, real texts with the length they have.

An answer is a row's, or a token's that begins a word. Labels must equal eager's wherever eager's best two logits lie
further apart than two backends within the limit can bring together, which is twice the limit. Answers closer than that
are counted: there rounding decides. A precision that is another function by design, int8, is held to its accuracy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from export.contract import NO_ANSWER, Limits
from export.proof.cases import Case
from export.proof.f1 import macro_f1
from export.proof.parity import Failure, Track, answer, backend_limit, derive_tolerances, no_progress, whole
from export.proof.precision import FLOAT32, INT8, PRECISIONS
from export.proof.runtimes import EAGER, Array, BackendError, Ids, Runtime
from export.proof.tolerance import Tolerance, distance, find_fault


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
    """What the test split says of one backend.

    `accuracy` is a fraction of all answers; errors are in logits; `limit` is None where the precision has none, and
    `budget`, the accuracy that may be lost, where labels are compared instead.
    """

    backend: str
    precision: str
    accuracy: float
    macro_f1: float
    budget: float | None
    equal_labels: int
    max_error: float
    limit: float | None
    failures: tuple[Failure, ...]


@dataclass(frozen=True, kw_only=True)
class TaskMetrics:
    """What the test split says of all backends; `undecided` answers lie within twice the limit."""

    rows: int
    answers: int
    undecided: int
    tolerances: Mapping[str, Tolerance]
    backends: tuple[BackendTask, ...]

    @property
    def tolerance(self) -> Tolerance:
        """The tolerance of float32, which is always there."""
        return self.tolerances[FLOAT32]


def check_task(
    reference: Runtime,
    runtimes: Sequence[Runtime],
    batches: Sequence[TestBatch],
    limits: Limits,
    track: Track = no_progress,
    *,
    int8_loss: float | None = None,
) -> TaskMetrics:
    """Run the test split on all runtimes; judge labels against eager and logits against the reference.

    Args:
        reference: eager in float64.
        runtimes: the backends, eager among them.
        batches: the test split.
        limits: what the model accepts.
        track: shows progress.
        int8_loss: the accuracy that int8 may lose, a fraction of all answers; None takes that of PRECISIONS.

    Raises:
        BackendError: if the reference or eager, which define the function, can't run a batch.
    """
    asked_runtimes = [runtime for runtime in runtimes if not runtime.grid_only]
    expected = []
    answers: dict[str, list[Array | BackendError | None]] = {runtime.name: [] for runtime in asked_runtimes}
    for batch in track(batches, "test split"):
        expected.append(reference.run(batch.input_ids, batch.attention_mask))
        for runtime in asked_runtimes:
            answers[runtime.name].append(answer(runtime, batch.input_ids, batch.attention_mask, limits))
    eager = whole(answers[EAGER])
    tolerances = derive_tolerances(answers, expected)
    asked = [batch.labels != NO_ANSWER for batch in batches]
    undecided = [_margins(output) <= 2 * tolerances[FLOAT32].limit for output in eager]
    results = [
        _judge(runtime, answers[runtime.name], batches, expected, eager, tolerances) for runtime in asked_runtimes
    ]
    accuracy = next(result.accuracy for result in results if result.backend == EAGER)
    return TaskMetrics(
        rows=sum(len(batch.labels) for batch in batches),
        answers=sum(int(places.sum()) for places in asked),
        undecided=sum(int((places & close).sum()) for places, close in zip(asked, undecided, strict=True)),
        tolerances=tolerances,
        backends=tuple(
            _with_loss(result, accuracy, _budget(runtime, int8_loss))
            for result, runtime in zip(results, asked_runtimes, strict=True)
        ),
    )


def _budget(runtime: Runtime, int8_loss: float | None) -> float | None:
    own = PRECISIONS[runtime.precision].accuracy_loss
    return own if int8_loss is None or runtime.precision != INT8 else int8_loss


def _with_loss(result: BackendTask, accuracy: float, budget: float | None) -> BackendTask:
    """Add a failure if a precision that is not judged label by label loses more accuracy than its budget."""
    loss = accuracy - result.accuracy
    result = replace(result, budget=budget)
    # A share of the answers is no exact number.
    if budget is None or loss <= budget + 1e-12:
        return result
    reason = (
        f"accuracy {result.accuracy:.4f}, {100 * loss:.2f} points below eager's; "
        f"{result.precision} may lose {100 * budget:g}"
    )
    failure = Failure(backend=result.backend, where="test split", reason=reason)
    return replace(result, failures=(*result.failures, failure))


def _margins(logits: Array) -> Array:
    """Return by how much each best logit leads the second; what is not finite leads by nothing."""
    best_two = np.sort(logits, axis=-1)[..., -2:]
    margins: Array = best_two[..., -1] - best_two[..., 0]
    return np.nan_to_num(margins, nan=0.0, posinf=0.0)


def _judge(
    runtime: Runtime,
    answers: Sequence[Array | BackendError | None],
    batches: Sequence[TestBatch],
    expected: Sequence[Array],
    eager: Sequence[Array],
    tolerances: Mapping[str, Tolerance],
) -> BackendTask:
    backend, limit = runtime.name, backend_limit(runtime, tolerances)
    # What lies further apart than this no backend within the limit can bring together.
    reach = np.inf if limit is None else 2 * tolerances[runtime.precision].limit
    failures = []
    correct = equal = row = asked = 0
    max_error = 0.0
    given, right = [], []
    for output, batch, wanted, eager_output in zip(answers, batches, expected, eager, strict=True):
        assert output is not None
        first, row = row, row + len(batch.labels)
        places = batch.labels != NO_ANSWER
        asked += int(places.sum())
        where = f"test rows {first} to {row - 1} in order of length"
        fault = str(output) if isinstance(output, BackendError) else find_fault(output, wanted, limit)
        if fault:
            case = Case(name=where, input_ids=batch.input_ids, attention_mask=batch.attention_mask)
            failures.append(Failure(backend=backend, where=where, reason=fault, case=case))
        if isinstance(output, BackendError) or output.shape != wanted.shape:
            continue
        max_error = max(max_error, distance(output, wanted))
        labels, eager_labels = output.argmax(axis=-1), eager_output.argmax(axis=-1)
        correct += int((labels == batch.labels).sum())
        given.append(labels[places])
        right.append(batch.labels[places])
        equal += int(((labels == eager_labels) & places).sum())
        clear = _margins(eager_output) > reach
        for place in zip(*np.nonzero((labels != eager_labels) & clear & places), strict=True):
            reason = f"label {labels[place]}, where eager has {eager_labels[place]} by more than twice the limit"
            token = "".join(f", token {column}" for column in place[1:])
            failures.append(Failure(backend=backend, where=f"test row {first + place[0]}{token}", reason=reason))
    return BackendTask(
        backend=backend,
        precision=runtime.precision,
        accuracy=correct / asked,
        macro_f1=macro_f1(np.concatenate(given), np.concatenate(right)) if given else 0.0,
        budget=None,
        equal_labels=equal,
        max_error=max_error,
        limit=limit,
        failures=tuple(failures),
    )
