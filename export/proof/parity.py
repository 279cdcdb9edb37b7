"""Parity: every backend on every case of the grid, against eager in float64.

A failure is an output beyond the limit, of another shape, not finite, or none at all. All failures are kept, not only
the first.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from export.contract import Limits, check_inputs
from export.proof.cases import Case
from export.proof.runtimes import EAGER, Array, BackendError, Ids, Runtime
from export.proof.tolerance import Tolerance, derive_tolerance, distance, find_fault

T = TypeVar("T")


class Track(Protocol):
    """Hands on the items, one by one, and may show progress; tqdm is one."""

    def __call__(self, items: Sequence[T], label: str, /) -> Iterable[T]:
        """Yield every item in order."""


def no_progress(items: Sequence[T], _: str, /) -> Iterable[T]:
    return items


@dataclass(frozen=True, kw_only=True)
class Failure:
    """One thing that is wrong: which backend, on what, and what happened."""

    backend: str
    where: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class BackendParity:
    """What the grid says of one backend; errors are in logits, `worst_case` names the case of `max_error`."""

    backend: str
    max_error: float
    worst_case: str
    max_difference_from_eager: float
    limit: float
    failures: tuple[Failure, ...]


@dataclass(frozen=True, kw_only=True)
class Parity:
    """What the grid says of all backends."""

    cases: int
    tolerance: Tolerance
    backends: tuple[BackendParity, ...]


def answer(runtime: Runtime, input_ids: Ids, attention_mask: Ids, limits: Limits) -> Array | BackendError:
    """Run one input as a loader does, checked against the contract first; a backend's failure is returned."""
    check_inputs(input_ids, attention_mask, limits)
    try:
        return runtime.run(input_ids, attention_mask)
    except BackendError as error:
        return error


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
    answers: dict[str, list[Array | BackendError]] = {runtime.name: [] for runtime in runtimes}
    for case in track(cases, "grid"):
        expected.append(reference.run(case.input_ids, case.attention_mask))
        for runtime in runtimes:
            answers[runtime.name].append(answer(runtime, case.input_ids, case.attention_mask, limits))
    eager = whole(answers[EAGER])
    tolerance = derive_tolerance(eager, expected)
    names = [case.name for case in cases]
    return Parity(
        cases=len(cases),
        tolerance=tolerance,
        backends=tuple(_judge(name, names, answers[name], expected, eager, tolerance) for name in answers),
    )


def whole(answers: Sequence[Array | BackendError]) -> list[Array]:
    """Return the outputs of a runtime that must have answered everything.

    Raises:
        BackendError: the first that was met.
    """
    outputs = []
    for output in answers:
        if isinstance(output, BackendError):
            raise output
        outputs.append(output)
    return outputs


def backend_limit(backend: str, tolerance: Tolerance) -> float:
    """Return the limit for a backend: eager, from which the limit of the others is derived, has its own."""
    return tolerance.eager_limit if backend == EAGER else tolerance.limit


def _judge(
    backend: str,
    names: Sequence[str],
    answers: Sequence[Array | BackendError],
    expected: Sequence[Array],
    eager: Sequence[Array],
    tolerance: Tolerance,
) -> BackendParity:
    limit = backend_limit(backend, tolerance)
    failures = []
    errors = {}
    difference = 0.0
    for name, output, wanted, eager_output in zip(names, answers, expected, eager, strict=True):
        if isinstance(output, BackendError):
            failures.append(Failure(backend=backend, where=name, reason=str(output)))
            continue
        fault = find_fault(output, wanted, limit)
        if fault:
            failures.append(Failure(backend=backend, where=name, reason=fault))
        if output.shape == wanted.shape:
            errors[name] = distance(output, wanted)
            difference = max(difference, distance(output, eager_output))
    worst = max(errors, key=errors.__getitem__, default="")
    return BackendParity(
        backend=backend,
        max_error=errors.get(worst, 0.0),
        worst_case=worst,
        max_difference_from_eager=difference,
        limit=limit,
        failures=tuple(failures),
    )
