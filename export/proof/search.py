"""Search: inputs drawn at random and steered towards the largest error, on the model and on its weights scaled up.

A backend may agree on a grid and differ where activations are large: masks by large numbers, exponentials that
overflow, sums that cancel. So the same inputs also run on copies of the files whose weight matrices are multiplied by
each factor of SCALES, judged by the limit that the scaled eager model gives.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from hypothesis import HealthCheck, Phase, given, settings, target
from hypothesis import seed as seeded

from export.contract import Limits
from export.proof.cases import SEED, Case, Ids
from export.proof.draws import cases
from export.proof.parity import BASELINES, Failure, Track, answer, backend_limit, is_asked
from export.proof.runtimes import BackendError, Runtime
from export.proof.tolerance import Tolerance, distance, find_fault


@dataclass(frozen=True, kw_only=True)
class BackendSearch:
    """What the search says of one backend: the input with the largest error, in logits."""

    backend: str
    max_error: float
    worst: Case | None
    limit: float | None
    failures: tuple[Failure, ...]


@dataclass(frozen=True, kw_only=True)
class Search:
    """What was drawn, on which weights, and what came of it; `cut` tells that the time was up before `asked` draws."""

    scale: float
    asked: int
    drawn: int
    cut: bool
    backends: tuple[BackendSearch, ...]


@dataclass
class _Record:
    """What is kept of a backend while draws go by; `suspects` lay beyond the limit of that moment, which only grows."""

    max_error: float = 0.0
    worst: Case | None = None
    suspects: list[tuple[Case, str, float]] = field(default_factory=list)


def search(
    reference: Runtime,
    runtimes: Sequence[Runtime],
    limits: Limits,
    *,
    count: int,
    texts: Sequence[Ids] = (),
    scale: float = 1.0,
    tolerances: Mapping[str, Tolerance] | None = None,
    seconds: float | None = None,
    seed: int = SEED,
    track: Track,
) -> Search:
    """Draw inputs, run them everywhere, and keep the worst of each backend.

    Args:
        reference: eager in float64.
        runtimes: the backends, the eager models of their precisions among them.
        limits: what the model accepts.
        count: how many inputs are drawn.
        texts: rows of real ids to draw from.
        scale: what the weights of these runtimes were multiplied by; it is only told.
        tolerances: those of the grid on the same weights, by precision; the search's own can but widen them.
        seconds: when to stop drawing, if `count` is not reached.
        seed: decides the draws.
        track: shows progress.

    Raises:
        BackendError: if the reference or eager can't run an input.
    """
    known = dict(tolerances or {})
    records = {runtime.name: _Record() for runtime in runtimes}
    deadline = None if seconds is None else time.monotonic() + seconds
    ticks = iter(track(range(count), f"search, weights × {scale:g}"))
    drawn = 0

    def probe(case: Case) -> None:
        nonlocal drawn
        if drawn == count or (deadline is not None and time.monotonic() > deadline):
            return
        drawn += 1
        next(ticks, None)
        steer = _probe(case, reference, runtimes, limits, known, records)
        target(steer)

    _draw(probe, count, limits, texts, seed)
    for _ in ticks:
        pass
    return Search(
        scale=scale,
        asked=count,
        drawn=drawn,
        # Few inputs may be all that there are: a search that ran out of them was not cut.
        cut=deadline is not None and drawn < count and time.monotonic() > deadline,
        backends=tuple(_judge(runtime, records[runtime.name], known) for runtime in runtimes),
    )


def _draw(probe: Callable[[Case], None], count: int, limits: Limits, texts: Sequence[Ids], seed: int) -> None:
    run = settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.target],
        suppress_health_check=list(HealthCheck),
    )(given(cases(limits, texts))(probe))
    seeded(seed)(run)()


def _probe(
    case: Case,
    reference: Runtime,
    runtimes: Sequence[Runtime],
    limits: Limits,
    known: dict[str, Tolerance],
    records: Mapping[str, _Record],
) -> float:
    """Run one input everywhere; return how near the worst backend comes to its limit."""
    expected = reference.run(case.input_ids, case.attention_mask)
    asked = [runtime for runtime in runtimes if is_asked(runtime, case)]
    outputs = {runtime.name: answer(runtime, case.input_ids, case.attention_mask, limits) for runtime in asked}
    for precision, baseline in BASELINES.items():
        if baseline in outputs:
            output = outputs[baseline]
            if isinstance(output, BackendError):
                raise output
            mine = Tolerance(
                eager_error=distance(output, expected),
                largest_logit=distance(expected, 0 * expected),
                precision=precision,
            )
            known[precision] = mine.widest(known.get(precision, mine))
    nearest = 0.0
    for runtime in asked:
        output, limit, record = outputs[runtime.name], backend_limit(runtime, known), records[runtime.name]
        if isinstance(output, BackendError):
            record.suspects.append((case, str(output), float("inf")))
            continue
        error = distance(output, expected)
        fault = find_fault(output, expected, limit)
        if fault is not None:
            # Only a finite distance may be forgiven when the limit has grown.
            beyond = fault.startswith("error ")
            record.suspects.append((case, fault, error if beyond else float("inf")))
        if record.worst is None or error > record.max_error:
            record.max_error, record.worst = error, case
        if limit and runtime.name not in BASELINES.values():
            nearest = max(nearest, error / limit)
    return min(nearest, 1e6)


def _judge(runtime: Runtime, record: _Record, known: Mapping[str, Tolerance]) -> BackendSearch:
    limit = backend_limit(runtime, known)
    return BackendSearch(
        backend=runtime.name,
        max_error=record.max_error,
        worst=record.worst,
        limit=limit,
        failures=tuple(
            Failure(backend=runtime.name, where=f"search, {case.name}", reason=reason, case=case)
            for case, reason, error in record.suspects
            if limit is None or error > limit
        ),
    )
