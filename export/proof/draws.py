"""Inputs at random, by property-based generation: shapes, masks and ids that no grid would think of.

Hypothesis draws them: it prefers extremes, repeats and near-misses, and is steered towards larger errors by `search`.
"""

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from export.contract import Limits
from export.proof.cases import MASKS, Case, Ids

# Rows beyond this show nothing that eight do not, and cost time.
MAX_BATCH = 8
_PATTERNS = (*MASKS, "random")


def cases(limits: Limits, texts: Sequence[Ids]) -> st.SearchStrategy[Case]:
    """Draw inputs that the contract allows.

    Args:
        limits: what the model accepts.
        texts: rows of real ids, each (length,) int64; drawn from if there are any.
    """
    kinds = ["uniform", "one id", "few ids", "largest ids", *(["texts"] if texts else [])]
    return st.builds(
        lambda batch, length, pattern, kind, seed: _build(limits, texts, batch, length, pattern, kind, seed),
        st.integers(1, MAX_BATCH),
        st.integers(1, limits.max_length),
        st.sampled_from(_PATTERNS),
        st.sampled_from(kinds),
        st.integers(0, 2**32 - 1),
    )


def _build(limits: Limits, texts: Sequence[Ids], batch: int, length: int, pattern: str, kind: str, seed: int) -> Case:
    rng = np.random.default_rng(seed)
    if pattern == "random":
        # Each row has a share of its own, so that full and nearly empty rows meet.
        mask = (rng.random((batch, length)) < rng.random((batch, 1))).astype(np.int64)
    else:
        mask = MASKS[pattern](batch, length, rng)
    ids = _draw_ids(limits, texts, mask.shape, kind, rng)
    name = f"B{batch}-T{length}-{pattern}-{kind.replace(' ', '-')}-{seed}"
    return Case(name=name, input_ids=np.ascontiguousarray(ids), attention_mask=np.ascontiguousarray(mask))


def _draw_ids(limits: Limits, texts: Sequence[Ids], shape: tuple[int, ...], kind: str, rng: np.random.Generator) -> Ids:
    vocabulary = limits.vocab_size
    if kind == "one id":
        return np.full(shape, rng.integers(0, vocabulary), np.int64)
    if kind == "few ids":
        few = rng.integers(0, vocabulary, 3, np.int64)
        return few[rng.integers(0, len(few), shape)]
    if kind == "largest ids":
        return rng.integers(max(0, vocabulary - 8), vocabulary, shape, np.int64)
    ids = rng.integers(0, vocabulary, shape, np.int64)
    if kind == "texts":
        for row in ids:
            # Texts one after another, until the row is full.
            told = np.concatenate([texts[index] for index in rng.integers(0, len(texts), shape[1])])[: shape[1]]
            row[: len(told)] = told
    return ids
