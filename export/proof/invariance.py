"""Invariances: an answer does not depend on how much padding stands beside it, on its company, or on the order of rows.

They need no reference, so they also bind what has none. Two answers to one row are two roundings of the same value;
healthy ones lie far inside the limit that parity derived for one rounding, so that limit serves here.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from export.contract import Limits
from export.proof.cases import MASKS, SEED, Ids
from export.proof.parity import Failure, Track, answer, no_progress
from export.proof.runtimes import BackendError, Runtime
from export.proof.tolerance import distance, find_fault

SHAPES = ((3, 7), (8, 33))
KINDS = ("ones", "holes", "empty-row")

# One retelling of a batch: what it is called, its inputs, and which rows of the batch its rows are.
Retelling = tuple[str, Ids, Ids, list[int]]


@dataclass(frozen=True, kw_only=True)
class Invariance:
    """What one law says of one backend; `max_difference` is in logits, `worst` names the retelling that had it."""

    law: str
    backend: str
    retellings: int
    max_difference: float
    worst: str
    limit: float
    failures: tuple[Failure, ...]


def _with_padding(ids: Ids, mask: Ids, limits: Limits, rng: np.random.Generator) -> Iterator[Retelling]:
    """Add random masked ids on the right and on the left: a few, and as many as the model accepts."""
    rows, length = ids.shape
    room = limits.max_length - length
    for columns in sorted({min(9, room), room} - {0}):
        padding = rng.integers(0, limits.vocab_size, (rows, columns), np.int64)
        nothing = np.zeros_like(padding)
        everyone = list(range(rows))
        yield f"{columns}-right", np.hstack([ids, padding]), np.hstack([mask, nothing]), everyone
        yield f"{columns}-left", np.hstack([padding, ids]), np.hstack([nothing, mask]), everyone


def _alone(ids: Ids, mask: Ids, _: Limits, __: np.random.Generator) -> Iterator[Retelling]:
    for row in range(len(ids)):
        yield f"row-{row}", ids[row : row + 1], mask[row : row + 1], [row]


def _reversed(ids: Ids, mask: Ids, _: Limits, __: np.random.Generator) -> Iterator[Retelling]:
    yield "reversed", ids[::-1].copy(), mask[::-1].copy(), list(range(len(ids)))[::-1]


LAWS: dict[str, Callable[[Ids, Ids, Limits, np.random.Generator], Iterator[Retelling]]] = {
    "more padding": _with_padding,
    "no company": _alone,
    "another order": _reversed,
}


def check_invariance(
    runtimes: Sequence[Runtime], limits: Limits, limit: float, *, seed: int = SEED, track: Track = no_progress
) -> list[Invariance]:
    """Retell batches under every law on every runtime and compare the answers row by row.

    Args:
        runtimes: the backends; each is compared with itself only.
        limits: what the model accepts.
        limit: the largest difference allowed, in logits.
        seed: decides the ids.
        track: shows progress.
    """
    batches = list(_batches(limits, seed))
    return [
        _check_law(law, runtime, batches, limits, limit, seed)
        for runtime in track(runtimes, "invariance")
        for law in LAWS
    ]


def _batches(limits: Limits, seed: int) -> Iterator[tuple[str, Ids, Ids]]:
    for batch, length in dict.fromkeys((batch, min(length, limits.max_length)) for batch, length in SHAPES):
        for kind in KINDS:
            rng = np.random.default_rng([seed, batch, length])
            mask = MASKS[kind](batch, length, rng)
            yield f"B{batch}-T{length}-{kind}", rng.integers(0, limits.vocab_size, mask.shape, np.int64), mask


def _check_law(
    law: str, runtime: Runtime, batches: Sequence[tuple[str, Ids, Ids]], limits: Limits, limit: float, seed: int
) -> Invariance:
    differences: dict[str, float] = {}
    failures = []
    for batch, ids, mask in batches:
        together = answer(runtime, ids, mask, limits)
        for name, other_ids, other_mask, rows in LAWS[law](ids, mask, limits, np.random.default_rng(seed)):
            where = f"{batch}, {law} ({name})"
            other = answer(runtime, other_ids, other_mask, limits)
            fault: str | None
            if isinstance(together, BackendError) or isinstance(other, BackendError):
                fault = str(together if isinstance(together, BackendError) else other)
            elif together.ndim == 0 or len(together) != len(ids):
                fault = f"shape {together.shape}, wanted {len(ids)} rows"
            else:
                fault = find_fault(other, together[rows], limit)
                differences[where] = distance(other, together[rows])
            if fault:
                failures.append(Failure(backend=runtime.name, where=where, reason=fault))
    worst = max(differences, key=differences.__getitem__, default="")
    return Invariance(
        law=law,
        backend=runtime.name,
        retellings=len(differences),
        max_difference=differences.get(worst, 0.0),
        worst=worst,
        limit=limit,
        failures=tuple(failures),
    )
