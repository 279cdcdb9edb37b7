"""Invariances: an answer does not depend on how much padding stands beside it, on its company, or on the order of rows.

They need no reference, so they also bind what has none. Two answers to one row are two roundings of the same value;
healthy ones lie far inside the limit that parity derived for one rounding, so that limit serves here.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from export.contract import Limits
from export.proof.cases import MASKS, SEED, Ids
from export.proof.parity import Failure, Track, answer, no_progress
from export.proof.runtimes import BackendError, Runtime
from export.proof.tolerance import distance, find_fault

SHAPES = ((3, 7), (8, 33))
KINDS = ("ones", "holes", "empty-row")


class Retelling(NamedTuple):
    """A batch told in another way; `rows`: which rows of the batch its rows are, `columns`: where its tokens stand."""

    name: str
    input_ids: Ids
    attention_mask: Ids
    rows: list[int]
    columns: slice


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
        right = np.hstack([ids, padding]), np.hstack([mask, nothing])
        left = np.hstack([padding, ids]), np.hstack([nothing, mask])
        yield Retelling(f"{columns}-right", *right, everyone, slice(length))
        yield Retelling(f"{columns}-left", *left, everyone, slice(columns, None))


def _alone(ids: Ids, mask: Ids, _: Limits, __: np.random.Generator) -> Iterator[Retelling]:
    for row in range(len(ids)):
        yield Retelling(f"row-{row}", ids[row : row + 1], mask[row : row + 1], [row], slice(None))


def _reversed(ids: Ids, mask: Ids, _: Limits, __: np.random.Generator) -> Iterator[Retelling]:
    yield Retelling("reversed", ids[::-1].copy(), mask[::-1].copy(), list(range(len(ids)))[::-1], slice(None))


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
        for retelling in LAWS[law](ids, mask, limits, np.random.default_rng(seed)):
            where = f"{batch}, {law} ({retelling.name})"
            other = answer(runtime, retelling.input_ids, retelling.attention_mask, limits)
            fault: str | None
            if isinstance(together, BackendError) or isinstance(other, BackendError):
                fault = str(together if isinstance(together, BackendError) else other)
            elif together.ndim == 0 or len(together) != len(ids):
                fault = f"shape {together.shape}, wanted {len(ids)} rows"
            else:
                wanted = together[retelling.rows]
                # Logits of tokens stand where the tokens do.
                other = other[:, retelling.columns] if other.ndim == 3 else other
                fault = find_fault(other, wanted, limit)
                differences[where] = distance(other, wanted)
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
