"""Invariances: an answer does not depend on how much padding stands where, on its company, or on the order of rows.

They need no reference, so they also bind what has none: int8. Two answers to one row are two roundings of the same
value; healthy ones lie far inside the limit that parity derived for one rounding, so that limit serves here. int8 is
held to float32's: with calibrated scales its sums are of integers, and exact.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from export.contract import Limits
from export.proof.cases import MASKS, SEED, Case, Ids
from export.proof.parity import Failure, Track, answer, no_progress
from export.proof.precision import FLOAT32, PRECISIONS
from export.proof.runtimes import Array, BackendError, Runtime
from export.proof.tolerance import Tolerance, distance, find_fault

SHAPES = ((3, 7), (8, 33))
KINDS = ("ones", "holes", "empty-row")


class Retelling(NamedTuple):
    """A batch told in another way.

    `rows`: which rows of the batch its rows are; `columns`: where its tokens stand; `amount`: how much was done to it,
    in columns of padding or rows of company.
    """

    name: str
    amount: int
    input_ids: Ids
    attention_mask: Ids
    rows: list[int]
    columns: list[int]


@dataclass(frozen=True, kw_only=True)
class Invariance:
    """What one law says of one backend.

    `max_difference` is in logits, `worst` names the retelling that had it, and `curve` holds the largest difference for
    each amount of padding or company.
    """

    law: str
    backend: str
    retellings: int
    max_difference: float
    worst: str
    curve: Mapping[int, float]
    limit: float
    failures: tuple[Failure, ...]


Law = Callable[[Ids, Ids, Limits, np.random.Generator], Iterator[Retelling]]


def _amounts(room: int) -> list[int]:
    """Return 1, 2, 4, … and the most that there is room for; nothing where there is none."""
    if room < 1:
        return []
    return sorted({room, *(1 << power for power in range(room.bit_length()) if 1 << power < room)})


def _padded(place: Callable[[int, int, np.random.Generator], list[int]]) -> Law:
    """Make a law that adds random masked ids; `place` says in which of the columns the tokens stand."""

    def retell(ids: Ids, mask: Ids, limits: Limits, rng: np.random.Generator) -> Iterator[Retelling]:
        rows, length = ids.shape
        for amount in _amounts(limits.max_length - length):
            columns = place(length, amount, rng)
            wide_ids = rng.integers(0, limits.vocab_size, (rows, length + amount), np.int64)
            wide_mask = np.zeros_like(wide_ids)
            wide_ids[:, columns], wide_mask[:, columns] = ids, mask
            yield Retelling(f"{amount} columns", amount, wide_ids, wide_mask, list(range(rows)), columns)

    return retell


def _spread(length: int, amount: int, rng: np.random.Generator) -> list[int]:
    """Place tokens in order with padding between them."""
    places: list[int] = sorted(rng.choice(length + amount, length, replace=False).tolist())
    return places


def _company(ids: Ids, mask: Ids, _: Limits, __: np.random.Generator) -> Iterator[Retelling]:
    """Answer each row alone, and the first rows with less and less company."""
    everywhere = list(range(ids.shape[1]))
    for row in range(len(ids)):
        yield Retelling(f"row {row} alone", 0, ids[row : row + 1], mask[row : row + 1], [row], everywhere)
    for amount in _amounts(len(ids) - 2):
        count = amount + 1
        yield Retelling(f"{count} rows", amount, ids[:count], mask[:count], list(range(count)), everywhere)


def _order(ids: Ids, mask: Ids, _: Limits, rng: np.random.Generator) -> Iterator[Retelling]:
    everywhere = list(range(ids.shape[1]))
    backwards = list(range(len(ids)))[::-1]
    for name, rows in (("reversed", backwards), ("shuffled", rng.permutation(len(ids)).tolist())):
        yield Retelling(name, 0, ids[rows], mask[rows], rows, everywhere)


LAWS: dict[str, Law] = {
    "right padding": _padded(lambda length, _, __: list(range(length))),
    "left padding": _padded(lambda length, amount, _: list(range(amount, amount + length))),
    "holes": _padded(_spread),
    "company": _company,
    "order": _order,
}


def check_invariance(
    runtimes: Sequence[Runtime],
    limits: Limits,
    tolerances: Mapping[str, Tolerance],
    *,
    seed: int = SEED,
    track: Track = no_progress,
) -> list[Invariance]:
    """Retell batches under every law on every runtime and compare the answers row by row.

    Args:
        runtimes: the backends; each is compared with itself only.
        limits: what the model accepts.
        tolerances: those of parity by precision; a precision without one is held to float32's.
        seed: decides the ids.
        track: shows progress.
    """
    batches = list(build_batches(limits, seed))
    return [
        _check_law(law, runtime, batches, limits, tolerances.get(runtime.precision, tolerances[FLOAT32]).limit, seed)
        for runtime in track([runtime for runtime in runtimes if not runtime.grid_only], "invariance")
        for law in LAWS
    ]


def build_batches(limits: Limits, seed: int = SEED) -> Iterator[tuple[str, Ids, Ids]]:
    """Build the batches that are retold: name, ids and mask."""
    for batch, length in dict.fromkeys((batch, min(length, limits.max_length)) for batch, length in SHAPES):
        for kind in KINDS:
            rng = np.random.default_rng([seed, batch, length])
            mask = MASKS[kind](batch, length, rng)
            yield f"B{batch}-T{length}-{kind}", rng.integers(0, limits.vocab_size, mask.shape, np.int64), mask


def compare(
    together: Array | BackendError, other: Array | BackendError, retelling: Retelling, rows: int, limit: float
) -> tuple[str | None, float | None]:
    """Say what is wrong with the answer to a retelling, and how far it is from the batch's, None without two answers.

    Args:
        together: the answer to the batch.
        other: the answer to the retelling.
        retelling: how the batch was told.
        rows: how many rows the batch has.
        limit: the largest difference allowed, in logits.
    """
    if isinstance(together, BackendError) or isinstance(other, BackendError):
        return str(together if isinstance(together, BackendError) else other), None
    if together.ndim == 0 or len(together) != rows:
        return f"shape {together.shape}, wanted {rows} rows", None
    # Logits of tokens stand where the tokens do.
    if other.ndim == 3 and other.shape[1] == retelling.input_ids.shape[1]:
        other = other[:, retelling.columns]
    wanted = together[retelling.rows]
    return find_fault(other, wanted, limit), distance(other, wanted)


def _check_law(
    law: str, runtime: Runtime, batches: Sequence[tuple[str, Ids, Ids]], limits: Limits, limit: float, seed: int
) -> Invariance:
    differences: dict[str, float] = {}
    curve: dict[int, float] = {}
    failures = []
    for batch, ids, mask in batches:
        together = answer(runtime, ids, mask, limits)
        for retelling in LAWS[law](ids, mask, limits, np.random.default_rng(seed)):
            where = f"{batch}, {law} ({retelling.name})"
            other = answer(runtime, retelling.input_ids, retelling.attention_mask, limits)
            fault, difference = compare(together, other, retelling, len(ids), limit)
            if difference is not None:
                differences[where] = difference
                curve[retelling.amount] = max(curve.get(retelling.amount, 0.0), difference)
            if fault:
                case = Case(name=where, input_ids=retelling.input_ids, attention_mask=retelling.attention_mask)
                reason = f"{fault}; {PRECISIONS[runtime.precision].cure}"
                failures.append(Failure(backend=runtime.name, where=where, reason=reason, case=case))
    worst = max(differences, key=differences.__getitem__, default="")
    return Invariance(
        law=law,
        backend=runtime.name,
        retellings=len(differences),
        max_difference=differences.get(worst, 0.0),
        worst=worst,
        curve=dict(sorted(curve.items())),
        limit=limit,
        failures=tuple(failures),
    )
