import math

import pytest

from pipeline.schedules import SCHEDULES

WARMUP, TOTAL = 4, 20


@pytest.mark.parametrize("name", SCHEDULES)
def test_rises_to_the_peak_in_equal_steps(name):
    schedule = SCHEDULES[name]
    assert [schedule(step, WARMUP, TOTAL) for step in range(WARMUP)] == [0.25, 0.5, 0.75, 1.0]


@pytest.mark.parametrize("name", SCHEDULES)
def test_never_rises_again_and_stays_positive(name):
    factors = [SCHEDULES[name](step, WARMUP, TOTAL) for step in range(WARMUP - 1, TOTAL)]
    assert factors == sorted(factors, reverse=True)
    assert all(0 < factor <= 1 for factor in factors)


@pytest.mark.parametrize(
    ("name", "middle"), [("cosine", 0.5), ("linear", 0.5), ("inverse_sqrt", math.sqrt(WARMUP / 13))]
)
def test_middle_of_the_descent(name, middle):
    assert SCHEDULES[name](12, WARMUP, TOTAL) == pytest.approx(middle)


@pytest.mark.parametrize("name", SCHEDULES)
def test_works_without_warm_up_and_with_more_warm_up_than_steps(name):
    assert SCHEDULES[name](0, 0, 10) == 1.0
    assert SCHEDULES[name](9, 100, 10) == 0.1
