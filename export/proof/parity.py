"""Parity: every backend on every case of the grid, against eager in float64.

A failure is an output beyond the limit, of another shape, not finite, or none at all. All failures are kept, not only
the first.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from export.contract import Limits, check_inputs
from export.proof.cases import Case
from export.proof.precision import BFLOAT16, FLOAT16, FLOAT32, PRECISIONS
from export.proof.runtimes import EAGER, EAGER_BFLOAT, EAGER_HALF, Array, BackendError, Ids, Runtime
from export.proof.tolerance import Distances, Tolerance, derive_tolerance, distance, find_fault, measure

T = TypeVar("T")

# The eager model from which the limit of a precision is derived.
BASELINES = {FLOAT32: EAGER, FLOAT16: EAGER_HALF, BFLOAT16: EAGER_BFLOAT}


class Track(Protocol):
    """Hands on the items, one by one, and may show progress; tqdm is one."""

    def __call__(self, items: Sequence[T], label: str, /) -> Iterable[T]:
        """Yield every item in order."""


def no_progress(items: Sequence[T], _: str, /) -> Iterable[T]:
    return items


@dataclass(frozen=True, kw_only=True)
class Failure:
    """One thing that is wrong: which backend, on what, and what happened; `case` is the input, if there was one."""

    backend: str
    where: str
    reason: str
    case: Case | None = None


@dataclass(frozen=True, kw_only=True)
class BackendParity:
    """What the grid says of one backend.

    `errors` holds, for each case that it was asked, the largest error in logits, None where it gave no comparable
    answer; `worst_case` names the largest. `limit` is None where the precision has none.
    """

    backend: str
    precision: str
    errors: Mapping[str, float | None]
    distances: Distances
    worst_case: str
    max_difference_from_eager: float
    limit: float | None
    failures: tuple[Failure, ...]

    @property
    def max_error(self) -> float:
        return max((error for error in self.errors.values() if error is not None), default=0.0)


@dataclass(frozen=True, kw_only=True)
class Parity:
    """What the grid says of all backends; `tolerances` by precision, for those that have one."""

    cases: tuple[Case, ...]
    tolerances: Mapping[str, Tolerance]
    backends: tuple[BackendParity, ...]

    @property
    def tolerance(self) -> Tolerance:
        """The tolerance of float32, which is always there."""
        return self.tolerances[FLOAT32]


def answer(runtime: Runtime, input_ids: Ids, attention_mask: Ids, limits: Limits) -> Array | BackendError:
    """Run one input as a loader does, checked against the contract first; a backend's failure is returned."""
    check_inputs(input_ids, attention_mask, limits)
    try:
        return runtime.run(input_ids, attention_mask)
    except BackendError as error:
        return error


def is_asked(runtime: Runtime, case: Case) -> bool:
    return runtime.longest is None or case.input_ids.shape[1] <= runtime.longest


def check_parity(
    reference: Runtime, runtimes: Sequence[Runtime], cases: Sequence[Case], limits: Limits, track: Track = no_progress
) -> Parity:
    """Run the cases on all runtimes and judge each against the reference.

    Args:
        reference: eager in float64; it must be able to run every case.
        runtimes: the backends, eager among them: the limit is derived from it.
        cases: the grid.
        limits: what the model accepts.
        track: shows progress.

    Raises:
        BackendError: if the reference or eager, which define the function, can't run a case.
    """
    expected: list[Array] = []
    answers: dict[str, list[Array | BackendError | None]] = {runtime.name: [] for runtime in runtimes}
    for case in track(cases, "grid"):
        expected.append(reference.run(case.input_ids, case.attention_mask))
        for runtime in runtimes:
            asked = is_asked(runtime, case)
            given = answer(runtime, case.input_ids, case.attention_mask, limits) if asked else None
            answers[runtime.name].append(given)
    eager = whole(answers[EAGER])
    tolerances = derive_tolerances(answers, expected)
    return Parity(
        cases=tuple(cases),
        tolerances=tolerances,
        backends=tuple(
            _judge(runtime, cases, answers[runtime.name], expected, eager, tolerances) for runtime in runtimes
        ),
    )


def derive_tolerances(
    answers: Mapping[str, Sequence[Array | BackendError | None]], expected: Sequence[Array]
) -> dict[str, Tolerance]:
    """Derive the tolerance of every precision whose eager model is among the backends.

    Raises:
        BackendError: if such a model could not run a case.
    """
    return {
        precision: derive_tolerance(whole(answers[baseline]), expected, precision=precision)
        for precision, baseline in BASELINES.items()
        if baseline in answers
    }


def whole(answers: Sequence[Array | BackendError | None]) -> list[Array]:
    """Return the outputs of a runtime that must have answered everything.

    Raises:
        BackendError: the first that was met.
    """
    outputs = []
    for output in answers:
        if isinstance(output, BackendError):
            raise output
        assert output is not None
        outputs.append(output)
    return outputs


def backend_limit(runtime: Runtime, tolerances: Mapping[str, Tolerance]) -> float | None:
    """Return the limit on a backend's errors, in logits; None where its precision has none.

    The eager models, from which the limits of the others are derived, have their own.
    """
    if PRECISIONS[runtime.precision].dtype is None:
        return None
    tolerance = tolerances[runtime.precision]
    return tolerance.eager_limit if runtime.name in BASELINES.values() else tolerance.limit


def _judge(
    runtime: Runtime,
    cases: Sequence[Case],
    answers: Sequence[Array | BackendError | None],
    expected: Sequence[Array],
    eager: Sequence[Array],
    tolerances: Mapping[str, Tolerance],
) -> BackendParity:
    limit = backend_limit(runtime, tolerances)
    failures = []
    errors: dict[str, float | None] = {}
    pairs = []
    difference = 0.0
    for case, output, wanted, eager_output in zip(cases, answers, expected, eager, strict=True):
        if output is None:
            continue
        fault = str(output) if isinstance(output, BackendError) else find_fault(output, wanted, limit)
        if fault:
            failures.append(Failure(backend=runtime.name, where=case.name, reason=fault, case=case))
        errors[case.name] = None
        if not isinstance(output, BackendError) and output.shape == wanted.shape:
            errors[case.name] = distance(output, wanted) if np.isfinite(output).all() else None
            difference = max(difference, distance(output, eager_output))
            pairs.append((output, wanted))
    return BackendParity(
        backend=runtime.name,
        precision=runtime.precision,
        errors=errors,
        distances=measure([output for output, _ in pairs], [wanted for _, wanted in pairs]),
        worst_case=max(errors, key=lambda name: errors[name] or 0.0, default=""),
        max_difference_from_eager=difference,
        limit=limit,
        failures=tuple(failures),
    )
