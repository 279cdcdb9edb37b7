"""The smallest input that still fails, found from one that does.

What is smaller: first the batch × sequence, then an input with fewer masked places, then one with smaller ids.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from export.proof.cases import MASKS, SEED, Case, Ids

Fails = Callable[[Case], str | None]

# Each run may cost a forward of two models. Failures that follow from some tokens took about 40 runs; a limit on the
# length, where every smaller shape is tried in vain, 400 at 12 tokens.
MOST_RUNS = 600
# Up to so many cells every mask is tried, beyond it the kinds of the grid.
_EVERY_MASK_CELLS = 4


@dataclass(frozen=True, kw_only=True)
class Shrunk:
    """What shrinking found: `reason` says how the case fails, `complete` whether `MOST_RUNS` sufficed."""

    case: Case
    reason: str
    runs: int
    complete: bool


class _OutOfRunsError(Exception):
    """The bound on runs is reached."""


def shrink(case: Case, fails: Fails, *, most_runs: int = MOST_RUNS) -> Shrunk:
    """Make a failing input as small as can be.

    If the result is `complete`, then it fails, and none of these does:

    - the result without one or more neighbouring rows or columns, of half, a quarter, … of them, down to each alone;
    - for every smaller batch × sequence inside the given case's: the first rows and columns of the result (repeated
      where there are too few) under every mask up to 4 cells and every kind of mask of the grid beyond, and random ids
      no larger than the given case's under the same masks;
    - the result with all ones for its mask, with one masked place less, with zeros for all its ids, or with one of them
      zero or one less.

    Nothing is random but what the seed decides, so the result follows from the case and from `fails`.

    Args:
        case: the input that fails.
        fails: says how an input fails, None if it does not. No input is asked twice.
        most_runs: how often `fails` is asked at most; what was found until then is the result.

    Raises:
        ValueError: if the case does not fail.
    """
    search = _Search(fails, most_runs)
    ids, mask = case.input_ids, case.attention_mask
    reason = search.ask(ids, mask)
    if reason is None:
        raise ValueError(f"the case {case.name} must fail to be made smaller; it passes.")
    search.accept(ids, mask, reason)
    try:
        _drop(search)
        # A simpler mask or simpler ids may let go of another row or column; another shape starts anew.
        while _simplify(search) or _try_smaller_shapes(search, case):
            _drop(search)
        complete = True
    except _OutOfRunsError:
        complete = False
    ids, mask = search.ids, search.mask
    name = f"B{ids.shape[0]}-T{ids.shape[1]}-shrunk"
    found = Case(name=name, input_ids=ids, attention_mask=mask)
    return Shrunk(case=found, reason=search.reason, runs=search.runs, complete=complete)


@dataclass
class _Search:
    """The smallest failing input so far, and everything that was asked."""

    fails: Fails
    most_runs: int
    runs: int = 0
    reason: str = ""
    ids: Ids = field(init=False)
    mask: Ids = field(init=False)
    known: dict[tuple[tuple[int, ...], bytes, bytes], str | None] = field(default_factory=dict)

    def ask(self, ids: Ids, mask: Ids) -> str | None:
        key = (ids.shape, ids.tobytes(), mask.tobytes())
        if key not in self.known:
            if self.runs == self.most_runs:
                raise _OutOfRunsError
            self.runs += 1
            case = Case(name=f"B{ids.shape[0]}-T{ids.shape[1]}", input_ids=ids, attention_mask=mask)
            self.known[key] = self.fails(case)
        return self.known[key]

    def accept(self, ids: Ids, mask: Ids, reason: str) -> None:
        self.ids, self.mask, self.reason = ids, mask, reason

    def attempt(self, ids: Ids, mask: Ids) -> bool:
        """Take an input for the new smallest if it fails."""
        ids, mask = np.ascontiguousarray(ids), np.ascontiguousarray(mask)
        reason = self.ask(ids, mask)
        if reason is not None:
            self.accept(ids, mask, reason)
        return reason is not None


def _drop(search: _Search) -> None:
    """Drop rows and columns until no part of any size can go."""
    size = 0
    while size != search.ids.size:
        size = search.ids.size
        for axis in (0, 1):
            _drop_along(search, axis)


def _drop_along(search: _Search, axis: int) -> None:
    """Drop runs of neighbours along an axis, longest first, the last ones first. Source: "Simplifying and Isolating
    Failure-Inducing Input" (delta debugging), section 3, with complements only.
    """
    size = search.ids.shape[axis] // 2
    while size:
        start = search.ids.shape[axis] - size
        while start >= 0 and search.ids.shape[axis] > size:
            dropped = slice(start, start + size)
            search.attempt(np.delete(search.ids, dropped, axis), np.delete(search.mask, dropped, axis))
            start = min(start, search.ids.shape[axis]) - size
        size //= 2


def _try_smaller_shapes(search: _Search, case: Case) -> bool:
    """Try inputs of every smaller batch × sequence, smallest first; say whether one fails."""
    rows, columns = case.input_ids.shape
    shapes = [
        (batch, length)
        for batch in range(1, rows + 1)
        for length in range(1, columns + 1)
        if batch * length < search.ids.size
    ]
    largest = int(case.input_ids.max())
    return any(
        search.attempt(ids, mask)
        for batch, length in sorted(shapes, key=lambda shape: (shape[0] * shape[1], shape))
        for ids in (
            np.resize(search.ids[:batch, :length], (batch, length)),
            np.random.default_rng([SEED, batch, length]).integers(0, largest + 1, (batch, length), np.int64),
        )
        for mask in _masks(batch, length)
    )


def _masks(batch: int, length: int) -> Iterator[Ids]:
    cells = batch * length
    if cells <= _EVERY_MASK_CELLS:
        for number in reversed(range(1 << cells)):
            yield np.array([number >> cell & 1 for cell in range(cells)], np.int64).reshape(batch, length)
    else:
        for mask_of in MASKS.values():
            yield mask_of(batch, length, np.random.default_rng([SEED, batch, length]))


def _simplify(search: _Search) -> bool:
    """Unmask what need not be masked and lower the ids; say whether anything changed."""
    ids, mask = search.ids, search.mask
    if not mask.all() and not search.attempt(ids, np.ones_like(mask)):
        for cell in np.argwhere(mask == 0):
            search.attempt(search.ids, _with(search.mask, cell, 1))
    if ids.any() and not search.attempt(np.zeros_like(ids), search.mask):
        for cell in np.argwhere(ids != 0):
            _lower(search, cell)
    return not (np.array_equal(ids, search.ids) and np.array_equal(mask, search.mask))


def _lower(search: _Search, cell: Ids) -> None:
    """Set one id to zero, or bisect for one that fails where the id below it does not."""
    if search.attempt(_with(search.ids, cell, 0), search.mask):
        return
    low, high = 0, int(search.ids[tuple(cell)])
    while high - low > 1:
        middle = (low + high) // 2
        if search.attempt(_with(search.ids, cell, middle), search.mask):
            high = middle
        else:
            low = middle


def _with(values: Ids, cell: Ids, value: int) -> Ids:
    changed = values.copy()
    changed[tuple(cell)] = value
    return changed
