"""From failures to counterexamples: for each backend the smallest failing input, a program, and the guilty layer."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from export.contract import Limits
from export.proof.cases import SEED, Case
from export.proof.invariance import LAWS, Retelling, build_batches, compare
from export.proof.localise import Culprit, find_culprit
from export.proof.parity import Failure, Track, answer, backend_limit, no_progress
from export.proof.precision import FLOAT32
from export.proof.reproduction import reproduce, reproduce_law
from export.proof.runtimes import Array, BackendError, Read, Runtime
from export.proof.shrink import shrink
from export.proof.tolerance import Tolerance, find_fault

# How many of a backend's failures are asked again at most, in search of one that fails once more.
_CANDIDATES = 8


@dataclass(frozen=True, kw_only=True)
class Counterexample:
    """One failure of a backend, made small and explained.

    `origin` is where it was met, `case` the input that was made of it, `reason` how that fails. `smallest` tells
    whether no smaller input that `shrink` can reach fails; it is false where its runs did not suffice. `reproduction`
    is a program that shows the failure. `culprit` is None where no value inside a file could be found wrong.
    """

    backend: str
    origin: str
    case: Case
    reason: str
    smallest: bool
    reproduction: str
    culprit: Culprit | None


class _Question(Protocol):
    """What a backend is asked again and again while an input is made smaller."""

    def fails(self, case: Case) -> str | None:
        """Say what is wrong with the answer to an input, or None."""

    def reproduce(self, case: Case) -> str:
        """Write a program that shows the failure of an input."""


@dataclass
class _IsRight:
    """Does the answer lie within the run's limit of the reference's, as parity asks?"""

    reference: Runtime
    runtime: Runtime
    limits: Limits
    limit: float | None
    # Shared by all backends: they are asked the same small inputs.
    expected: dict[tuple[tuple[int, ...], bytes, bytes], Array]

    def fails(self, case: Case) -> str | None:
        output = answer(self.runtime, case.input_ids, case.attention_mask, self.limits)
        return str(output) if isinstance(output, BackendError) else find_fault(output, self._right(case), self.limit)

    def reproduce(self, case: Case) -> str:
        return reproduce(self.runtime, case, self._right(case), self.limit)

    def _right(self, case: Case) -> Array:
        key = (case.input_ids.shape, case.input_ids.tobytes(), case.attention_mask.tobytes())
        if key not in self.expected:
            self.expected[key] = self.reference.run(case.input_ids, case.attention_mask)
        return self.expected[key]


@dataclass
class _KeepsLaw:
    """Is the answer to every row the same when the batch is told in another way, as one of LAWS says?"""

    runtime: Runtime
    law: str
    limits: Limits
    limit: float

    def fails(self, case: Case) -> str | None:
        return next((reason for _, reason in self._breaks(case)), None)

    def reproduce(self, case: Case) -> str:
        retelling, _ = next(self._breaks(case))
        other = Case(
            name=retelling.name,
            input_ids=np.ascontiguousarray(retelling.input_ids),
            attention_mask=np.ascontiguousarray(retelling.attention_mask),
        )
        return reproduce_law(self.runtime, case, other, retelling.rows, retelling.columns, self.limit)

    def _breaks(self, case: Case) -> Iterator[tuple[Retelling, str]]:
        ids, mask = case.input_ids, case.attention_mask
        together = answer(self.runtime, ids, mask, self.limits)
        for retelling in LAWS[self.law](ids, mask, self.limits, np.random.default_rng(SEED)):
            other = answer(self.runtime, retelling.input_ids, retelling.attention_mask, self.limits)
            fault, _ = compare(together, other, retelling, len(ids), self.limit)
            if fault is not None:
                yield retelling, f"{self.law}, {retelling.name}: {fault}"


def explain_failures(
    read: Read,
    reference: Runtime,
    runtimes: Sequence[Runtime],
    failures: Sequence[Failure],
    tolerances: Mapping[str, Tolerance],
    limits: Limits,
    track: Track = no_progress,
) -> tuple[Counterexample, ...]:
    """Explain one failure of each backend that failed on an input: the smallest of its first ones.

    Each costs at most `shrink.MOST_RUNS` runs of the backend and of the reference, and a few to look inside the file.
    Failures without an input, and those that do not fail when asked again (as on scaled weights), are not explained.

    Args:
        read: gives the bytes of a file by its name.
        reference: eager in float64.
        runtimes: the backends that ran.
        failures: everything that failed.
        tolerances: those of parity, by precision.
        limits: what the model accepts.
        track: shows progress.

    Raises:
        BackendError: if the reference or eager can't run an input.
    """
    expected: dict[tuple[tuple[int, ...], bytes, bytes], Array] = {}
    batches = {name: Case(name=name, input_ids=ids, attention_mask=mask) for name, ids, mask in build_batches(limits)}
    failing = {failure.backend for failure in failures if failure.case is not None}
    found: list[Counterexample] = []
    for runtime in track([runtime for runtime in runtimes if runtime.name in failing], "counterexamples"):
        right = _IsRight(reference, runtime, limits, backend_limit(runtime, tolerances), expected)
        law_limit = tolerances.get(runtime.precision, tolerances[FLOAT32]).limit
        # What was made small for one backend is often small for the next, which reads the same file.
        small = [(right, example.origin, example.case) for example in found]
        mine = [failure for failure in failures if failure.backend == runtime.name and failure.case is not None]
        laws = _law_questions(runtime, mine, batches, limits, law_limit)
        candidates = [*small, *_parity_questions(right, mine), *laws]
        for question, origin, case in candidates:
            # What failed on scaled weights need not fail here.
            if question.fails(case) is not None:
                found.append(_explain(read, runtime, question, origin, case, list(batches.values())))
                break
    return tuple(found)


def _parity_questions(right: _IsRight, failures: Sequence[Failure]) -> list[tuple[_Question, str, Case]]:
    cases = [(failure.where, failure.case) for failure in failures if failure.case is not None]
    cases.sort(key=lambda pair: pair[1].input_ids.size)
    return [(right, where, case) for where, case in cases[:_CANDIDATES]]


def _law_questions(
    runtime: Runtime, failures: Sequence[Failure], batches: Mapping[str, Case], limits: Limits, limit: float
) -> Iterator[tuple[_Question, str, Case]]:
    """Find the batches whose retellings failed: a failure holds the retelling only."""
    for law in LAWS:
        for name, batch in batches.items():
            if any(failure.where.startswith(f"{name}, {law} (") for failure in failures):
                yield _KeepsLaw(runtime, law, limits, limit), f"{name}, {law}", batch


def _explain(
    read: Read, runtime: Runtime, question: _Question, origin: str, case: Case, companions: Sequence[Case]
) -> Counterexample:
    shrunk = shrink(case, question.fails)
    return Counterexample(
        backend=runtime.name,
        origin=origin,
        case=shrunk.case,
        reason=shrunk.reason,
        smallest=shrunk.complete,
        reproduction=question.reproduce(shrunk.case),
        culprit=find_culprit(read, runtime, [shrunk.case, case], companions),
    )


def describe(example: Counterexample) -> str:
    """Write a counterexample for a terminal: what fails, which layer is guilty, and the program to copy."""
    rows, columns = example.case.input_ids.shape
    size = "the smallest failing input" if example.smallest else "the smallest failing input found"
    lines = [
        f"{example.backend}: {example.reason}",
        f"  {size}: batch {rows} x sequence {columns}, met first at {example.origin}",
        f"  first guilty layer: {_describe_culprit(example.culprit)}",
        "",
        example.reproduction,
    ]
    return "\n".join(lines)


def _describe_culprit(culprit: Culprit | None) -> str:
    if culprit is None:
        return "not found, no value that could be looked at lies beyond its limit"
    if culprit.distance is None:
        return f"{culprit.module}, {culprit.operator}: an error, or a value that is not finite or of another shape"
    return f"{culprit.module}, {culprit.operator}: error {culprit.distance:.2e}, limit {culprit.budget:.2e}"
