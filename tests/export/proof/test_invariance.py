"""Each law is broken by what breaks it, and by nothing else; curves tell how it grows."""

from collections.abc import Callable

import numpy as np
import pytest

from export.contract import Limits
from export.proof.invariance import LAWS, Invariance, check_invariance
from export.proof.precision import FLOAT16, FLOAT32, INT8, PRECISIONS
from export.proof.runtimes import Array, Ids, Runtime
from export.proof.tolerance import Tolerance

LIMITS = Limits(max_length=40, vocab_size=50)
# The limits are 4e-6 and 0.4.
TOLERANCES = {
    FLOAT32: Tolerance(eager_error=1e-6, largest_logit=0.0),
    FLOAT16: Tolerance(eager_error=0.1, largest_logit=0.0, precision=FLOAT16),
}
Spoil = Callable[[Ids, Ids], Array]


class Sums(Runtime):
    """Sums the kept ids of each row; `spoil` adds to that, (batch, 1)."""

    def __init__(self, spoil: Spoil, precision: str = FLOAT32) -> None:
        self.name = "subject"
        self.precision = precision
        self._spoil = spoil

    def run(self, input_ids: Ids, attention_mask: Ids) -> Array:
        total = (input_ids * attention_mask).sum(1, keepdims=True).astype(np.float64)
        return np.hstack([total, -total]) + self._spoil(input_ids, attention_mask)


def judge(spoil: Spoil, precision: str = FLOAT32) -> dict[str, Invariance]:
    return {part.law: part for part in check_invariance([Sums(spoil, precision)], LIMITS, TOLERANCES)}


def nothing(ids: Ids, mask: Ids) -> Array:
    return np.zeros((len(ids), 1))


def width(ids: Ids, mask: Ids) -> Array:
    return np.full((len(ids), 1), 1e-3 * ids.shape[1])


def first_column(ids: Ids, mask: Ids) -> Array:
    return 1e-3 * ids[:, :1]


def last_column(ids: Ids, mask: Ids) -> Array:
    return 1e-3 * ids[:, -1:]


def gaps(ids: Ids, mask: Ids) -> Array:
    """Count the holes between the first and the last token."""
    places = np.arange(1, ids.shape[1] + 1)
    last = (places * mask).max(1)
    first = np.where(mask.any(1), np.where(mask == 1, places, 10**6).min(1), 1)
    return 1e-3 * (last - first + 1 - mask.sum(1))[:, None]


def company(ids: Ids, mask: Ids) -> Array:
    return np.full((len(ids), 1), 1e-3 * len(ids))


def place_in_batch(ids: Ids, mask: Ids) -> Array:
    return 1e-3 * np.arange(len(ids))[:, None]


@pytest.mark.parametrize(
    ("spoil", "broken"),
    [
        (nothing, set()),
        (width, {"right padding", "left padding", "holes"}),
        (first_column, {"left padding", "holes"}),
        (last_column, {"right padding", "holes"}),
        (gaps, {"holes"}),
        (company, {"company"}),
        (place_in_batch, {"company", "order"}),
    ],
)
def test_a_law_is_broken_by_what_breaks_it(spoil: Spoil, broken: set[str]) -> None:
    found = judge(spoil)
    assert list(found) == list(LAWS)
    assert {law for law, part in found.items() if part.failures} == broken


def test_the_curve_tells_how_a_fault_grows() -> None:
    curve = judge(width)["right padding"].curve
    # Batches of 7 and 33 columns, with 1, 2, 4, … more, up to 40.
    assert list(curve) == [1, 2, 4, 7, 8, 16, 32, 33]
    assert curve[33] == pytest.approx(33e-3)
    assert curve[1] == pytest.approx(1e-3)
    assert list(judge(company)["company"].curve) == [0, 1, 2, 4, 6]


def test_each_precision_has_its_limit_and_int8_that_of_float32() -> None:
    assert judge(company, FLOAT32)["company"].limit == pytest.approx(4e-6)
    assert judge(company, INT8)["company"].limit == pytest.approx(4e-6)
    assert judge(company, FLOAT16)["company"].failures == ()


@pytest.mark.parametrize("precision", [FLOAT32, INT8])
def test_a_broken_law_says_what_would_cure_it_and_keeps_the_input(precision: str) -> None:
    for failure in judge(company, precision)["company"].failures:
        assert failure.reason.endswith(PRECISIONS[precision].cure)
        assert failure.case is not None
        assert failure.case.name == failure.where
