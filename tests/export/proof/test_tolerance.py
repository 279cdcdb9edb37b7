"""The limit follows from rounding errors, and what is not finite never passes."""

import numpy as np
import pytest

from export.proof.tolerance import Tolerance, derive_tolerance, distance, find_fault

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
