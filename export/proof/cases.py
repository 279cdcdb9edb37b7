"""The grid: batch × sequence × mask, with seeded synthetic ids over the whole vocabulary.

No shape is the one that the exporter saw, so a size frozen at export can't pass. Ids at masked positions are random
legal ids: a backend that reads them answers wrongly.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from export.contract import Limits

Ids = npt.NDArray[np.int64]

BATCHES = (1, 2, 3, 8)
SEQUENCES = (1, 2, 3, 7, 16, 33)
SEED = 0
# As long as every backend can be asked.
_VOCABULARY_SHAPE = (8, 64)
# Beyond this a case for each length costs more than it shows.
_EVERY_LENGTH_TO = 256
_LARGE_BATCH = 33


@dataclass(frozen=True, kw_only=True)
class Case:
    """One input of the grid. `name` says its shape and mask: B3-T37-holes."""

    name: str
    input_ids: Ids
    attention_mask: Ids


def _ones(batch: int, length: int, _: np.random.Generator) -> Ids:
    return np.ones((batch, length), np.int64)


def _right(batch: int, length: int, _: np.random.Generator) -> Ids:
    """Build rows of different lengths; in a batch the first is full, alone it is half full."""
    rows = np.arange(batch) if batch > 1 else np.array([1])
    kept = np.maximum(1, length - rows * length // max(batch, 2))
    mask: Ids = (np.arange(length) < kept[:, None]).astype(np.int64)
    return mask


def _left(batch: int, length: int, rng: np.random.Generator) -> Ids:
    # A copy: numpy calls a single column contiguous whatever its stride, and torch takes no negative ones.
    return _right(batch, length, rng)[:, ::-1].copy()


def _holes(batch: int, length: int, rng: np.random.Generator) -> Ids:
    """Build rows that begin and end with a token and have padding between."""
    mask = (rng.random((batch, length)) < 0.6).astype(np.int64)
    mask[:, length // 2] = 0
    mask[:, [0, -1]] = 1
    return mask


def _one_token(batch: int, length: int, _: np.random.Generator) -> Ids:
    """Build rows with a single token, each at another place."""
    place = (np.arange(batch) * 5 + length // 2) % length
    mask: Ids = (np.arange(length) == place[:, None]).astype(np.int64)
    return mask


def _empty_row(batch: int, length: int, rng: np.random.Generator) -> Ids:
    mask = _right(batch, length, rng)
    mask[batch // 2] = 0
    return mask


def _all_empty(batch: int, length: int, _: np.random.Generator) -> Ids:
    return np.zeros((batch, length), np.int64)


MASKS: dict[str, Callable[[int, int, np.random.Generator], Ids]] = {
    "ones": _ones,
    "right": _right,
    "left": _left,
    "holes": _holes,
    "one-token": _one_token,
    "all-empty": _all_empty,
    "empty-row": _empty_row,
}


def sequence_lengths(max_length: int) -> list[int]:
    """Return the lengths of the grid that the model accepts, its largest two among them."""
    lengths = {*SEQUENCES, max_length - 1, max_length}
    return sorted(length for length in lengths if 1 <= length <= max_length)


def build_grid(limits: Limits, *, seed: int = SEED) -> list[Case]:
    """Build every case of the grid; a mask that repeats an earlier one of the same shape is left out.

    Behind them stand every length up to 256, a batch larger than the grid's, and cases that together hold every id of
    the vocabulary. A case depends on the seed and its own name only, so that it can be built again alone.
    """
    cases = []
    for batch in BATCHES:
        for length in sequence_lengths(limits.max_length):
            seen = set()
            for kind, mask_of in MASKS.items():
                rng = np.random.default_rng([seed, batch, length, list(MASKS).index(kind)])
                mask = mask_of(batch, length, rng)
                if mask.tobytes() in seen:
                    continue
                seen.add(mask.tobytes())
                ids = _draw_ids(mask, limits.vocab_size, rng)
                cases.append(Case(name=f"B{batch}-T{length}-{kind}", input_ids=ids, attention_mask=mask))
    return [*cases, *_odd_cases(limits, seed), *_vocabulary_cases(limits)]


def _odd_cases(limits: Limits, seed: int) -> Iterator[Case]:
    """Build shapes of few tokens each that see what is wrong at one length only, or for many rows only."""
    shapes = [(2, length, "holes") for length in range(1, min(limits.max_length, _EVERY_LENGTH_TO) + 1)]
    shapes += [(_LARGE_BATCH, min(7, limits.max_length), kind) for kind in ("right", "empty-row")]
    for batch, length, kind in shapes:
        rng = np.random.default_rng([seed, batch, length])
        mask = MASKS[kind](batch, length, rng)
        ids = _draw_ids(mask, limits.vocab_size, rng)
        yield Case(name=f"B{batch}-T{length}-odd-{kind}", input_ids=ids, attention_mask=mask)


def _vocabulary_cases(limits: Limits) -> Iterator[Case]:
    """Lay out all ids in order, the last batch filled up from the beginning."""
    batch, length = _VOCABULARY_SHAPE[0], min(_VOCABULARY_SHAPE[1], limits.max_length)
    for first in range(0, limits.vocab_size, batch * length):
        ids = np.arange(first, first + batch * length, dtype=np.int64).reshape(batch, length) % limits.vocab_size
        name = f"B{batch}-T{length}-ids-from-{first}"
        yield Case(name=name, input_ids=ids, attention_mask=np.ones_like(ids))


def _draw_ids(mask: Ids, vocab_size: int, rng: np.random.Generator) -> Ids:
    """Draw ids, the smallest and the largest id among the tokens and among the padding where there is room."""
    ids = rng.integers(0, vocab_size, mask.shape, np.int64)
    for places in (np.argwhere(mask == 0), np.argwhere(mask == 1)):
        if len(places):
            ids[tuple(places[0])] = 0
            ids[tuple(places[-1])] = vocab_size - 1
    return ids
