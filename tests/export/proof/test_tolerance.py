"""The limit follows from rounding errors, and what is not finite never passes."""

import numpy as np
import pytest

from export.proof.precision import FLOAT16
from export.proof.tolerance import Tolerance, derive_tolerance, distance, find_fault, measure

REFERENCE = np.array([[1.0, -3.0], [0.5, 2.0]])


def test_the_limit_is_four_times_eagers_error_plus_four_roundings() -> None:
    eager = [REFERENCE + 1e-6, REFERENCE - 3e-6]
    tolerance = derive_tolerance(eager, [REFERENCE, REFERENCE])
    assert tolerance.eager_error == pytest.approx(3e-6)
    assert tolerance.largest_logit == 3.0
    assert tolerance.limit == pytest.approx(4 * 3e-6 + 4 * 2**-23 * 3)
    assert tolerance.eager_limit == pytest.approx(2**-13 * 3)


def test_an_error_beyond_the_limit_is_a_fault() -> None:
    assert find_fault(REFERENCE + 1e-6, REFERENCE, 2e-6) is None
    assert find_fault(REFERENCE + 3e-6, REFERENCE, 2e-6) == "error 3.00e-06, limit 2.00e-06"


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_never_passes(value: float) -> None:
    bad = REFERENCE.copy()
    bad[1, 0] = value
    elsewhere = REFERENCE.copy()
    elsewhere[0, 0] = value
    for actual, expected in ((bad, REFERENCE), (bad, bad), (bad, elsewhere), (REFERENCE, bad)):
        assert find_fault(actual, expected, 1e9) is not None
    assert "in the reference too" in str(find_fault(bad, bad, 1e9))
    assert "other places" in str(find_fault(bad, elsewhere, 1e9))
    assert "(1, 0)" in str(find_fault(bad, REFERENCE, 1e9))


def test_another_shape_is_a_fault_even_where_it_would_broadcast() -> None:
    assert find_fault(REFERENCE[:1], REFERENCE, 1e9) == "shape (1, 2), wanted (2, 2)"
    assert distance(REFERENCE[:1], REFERENCE) == np.inf


def test_values_that_are_not_finite_do_not_widen_the_limit() -> None:
    eager = REFERENCE + 1e-6
    eager[0, 0] = np.inf
    tolerance = derive_tolerance([eager], [REFERENCE])
    assert tolerance.eager_error == pytest.approx(1e-6)
    assert Tolerance(eager_error=0.0, largest_logit=0.0).limit == 0.0


def test_half_has_the_roundings_of_half() -> None:
    half = derive_tolerance([REFERENCE + 1e-3], [REFERENCE], precision=FLOAT16)
    assert half.limit == pytest.approx(4 * 1e-3 + 4 * 2**-10 * 3)
    assert half.eager_limit == pytest.approx(32 * 2**-10 * 3)
    assert Tolerance(eager_error=1.0, largest_logit=2.0).widest(Tolerance(eager_error=0.5, largest_logit=4.0)) == (
        Tolerance(eager_error=1.0, largest_logit=4.0)
    )


def test_distances_are_those_of_the_whole_run() -> None:
    wanted = [np.array([[3.0, 4.0], [0.0, 0.0]]), np.array([[1.0, 2.0]])]
    got = [np.array([[3.0, 4.4], [0.0, 0.0]]), np.array([[2.0, 1.0]])]
    distances = measure(got, wanted)
    assert distances.max_abs == 1.0
    # 1 of 1, and not infinite where zero is expected.
    assert distances.max_rel == 1.0
    assert distances.p99 == pytest.approx(np.percentile([0.0, 0.4, 0.0, 0.0, 1.0, 1.0], 99))
    assert distances.cosine == pytest.approx(4 / 5)
    assert distances.argmax_agreement == pytest.approx(2 / 3)
    same = measure(wanted, wanted)
    assert (same.max_abs, same.max_rel, same.p99, same.argmax_agreement) == (0.0, 0.0, 0.0, 1.0)


def test_distances_leave_out_what_can_not_be_compared() -> None:
    wanted = [np.array([[1.0, 2.0]]), np.array([[1.0, 2.0]])]
    assert measure([np.array([[np.nan, 2.0]]), np.array([[1.5, 2.0]])], wanted).max_abs == 0.5
    assert measure([np.zeros((3, 2)), np.array([[1.0, 2.5]])], wanted).max_abs == 0.5
    assert measure([], []).cosine == 1.0
