"""Scales, zero points and levels against plain loops, over ranges that are hostile too."""

import math
from fractions import Fraction

import numpy as np
import pytest

from export.quantization.scales import (
    SMALLEST_SCALE,
    TABLE_LEVELS,
    WEIGHT_LEVELS,
    Range,
    activation_scale,
    quantize_weight,
    weight_scales,
)

LARGEST = float(np.finfo(np.float32).max)
DENORMAL = 1e-45
CHANNELS = {
    "ordinary": [0.5, -1.0, 0.25, 0.0078125],
    "negative-largest": [0.1, -0.8, 0.3, 0.79],
    "zeros": [0.0, 0.0, 0.0, 0.0],
    "one": [0.0, 0.0, -3.0, 0.0],
    "denormal": [DENORMAL, -3 * DENORMAL, 0.0, DENORMAL],
    "small": [1e-37, -2e-37, 3e-38, 0.0],
    "large": [LARGEST, -LARGEST, 1e37, 0.0],
    "ties": [64.0, 0.5, 1.5, -2.5],
}


@pytest.mark.parametrize("levels", [WEIGHT_LEVELS, TABLE_LEVELS])
@pytest.mark.parametrize("channel", CHANNELS.values(), ids=CHANNELS)
def test_a_channel_is_rounded_to_the_nearest_level_of_its_own_scale(channel: list[float], levels: int) -> None:
    # Company of another size: no channel's scale depends on its neighbours.
    weight = np.array([channel, [7.0, 1.0, -7.0, 2.0]], np.float32)
    scales = weight_scales(weight, levels)
    rounded = quantize_weight(weight, scales, levels)
    assert (scales.dtype, scales.shape, rounded.dtype, rounded.shape) == (np.float32, (2,), np.int8, (2, 4))
    scale = float(scales[0])
    assert scale >= SMALLEST_SCALE
    assert math.isfinite(scale)
    for value, level in zip(weight[0].tolist(), rounded[0].tolist(), strict=True):
        # Exact numbers; Python rounds ties to even.
        wanted = round(Fraction(value) / Fraction(scale))
        assert level == max(-levels, min(levels, wanted))
        assert abs(Fraction(value) - Fraction(scale) * level) <= Fraction(scale) * Fraction(501, 1000)
    largest = max(abs(value) for value in weight[0].tolist())
    if largest > levels * SMALLEST_SCALE:
        assert scale == pytest.approx(largest / levels, rel=1e-6)
        assert max(abs(level) for level in rounded[0].tolist()) == levels


def test_two_products_of_an_activation_and_a_weight_fit_into_sixteen_bits() -> None:
    assert 2 * 255 * WEIGHT_LEVELS < 2**15


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_a_weight_that_is_not_finite_is_refused(number: float) -> None:
    with pytest.raises(ValueError, match="a weight is not finite"):
        weight_scales(np.array([[1.0, number]], np.float32), WEIGHT_LEVELS)


@pytest.mark.parametrize(
    ("low", "high", "zero_point"),
    [
        (-1.0, 1.5, 102),
        (0.0, 2.0, 0),
        (3.0, 5.0, 0),
        (-5.0, -3.0, 255),
        (-0.17, 8.13, 5),
        (0.0, 0.0, 0),
        (0.0, DENORMAL, 0),
        (-DENORMAL, DENORMAL, 0),
        (-LARGEST, LARGEST, 128),
    ],
)
def test_a_range_gets_a_scale_that_reaches_both_ends_and_zero(low: float, high: float, zero_point: int) -> None:
    scale, zero = activation_scale(Range(low, high))
    assert (scale.dtype, zero.dtype, int(zero)) == (np.float32, np.uint8, zero_point)
    assert SMALLEST_SCALE <= scale < np.inf
    step = Fraction(float(scale))
    for end in (low, high, 0.0):
        level = max(0, min(255, round(Fraction(end) / step) + int(zero)))
        # Both ends may lie half a step outside, for zero has a level of its own.
        assert abs(step * (level - int(zero)) - Fraction(end)) <= step * Fraction(501, 1000)


@pytest.mark.parametrize("ends", [(np.nan, 1.0), (0.0, np.nan), (-np.inf, 0.0), (0.0, np.inf), (1.0, 0.0)])
def test_a_range_without_ends_is_refused(ends: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="a range must be finite"):
        Range(*ends)
