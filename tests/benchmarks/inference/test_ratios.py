"""Ratios on numbers whose answer is known."""

import pytest

from benchmarks.inference.measure import FLOOR, Timed, compare, compare_each
from benchmarks.inference.ratios import Ratio, fastest, paired_ratio


def test_ratios_are_paired_within_a_repetition() -> None:
    """A machine that slows down tenfold changes no ratio."""
    ours = [1.0, 10.0, 1.0, 100.0, 1.0]
    ratio = paired_ratio([2 * seconds for seconds in ours], ours, peer="p")
    assert ratio == Ratio(median=2.0, low=2.0, high=2.0, peer="p")


def test_the_median_is_that_of_the_ratios_and_the_interval_holds_it() -> None:
    above = [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 9.0]
    ratio = paired_ratio(above, [1.0] * 9, peer="p")
    assert ratio.median == 1.4
    assert 1.0 < ratio.low < 1.4 < ratio.high < 9.0


def test_the_interval_is_that_of_the_bootstrap() -> None:
    """Of three values the resampled median is the smallest with probability 7/27, so the interval is all of them."""
    assert paired_ratio([1.0, 2.0, 3.0], [1.0] * 3, peer="p") == Ratio(median=2.0, low=1.0, high=3.0, peer="p")
    # With 21 values the order statistics 6 and 16 hold 97.3 % of the resampled medians, 7 and 15 hold 92.2 %.
    ratio = paired_ratio([float(value) for value in range(1, 22)], [1.0] * 21, peer="p")
    assert ratio.median == 11
    assert ratio.low in (6, 7)
    assert ratio.high in (15, 16)


def test_the_interval_is_the_same_in_every_run() -> None:
    above, below = [1.0, 1.5, 1.2, 1.9], [1.0, 1.1, 0.9, 1.3]
    assert paired_ratio(above, below, peer="p") == paired_ratio(above, below, peer="p")


@pytest.mark.parametrize(("above", "below"), [([], []), ([1.0], [1.0, 2.0])])
def test_what_is_not_paired_is_refused(above: list[float], below: list[float]) -> None:
    with pytest.raises(ValueError, match=f"times must be paired; got {len(above)} and {len(below)}"):
        paired_ratio(above, below, peer="p")


def test_the_best_peer_has_the_smallest_median_and_was_timed() -> None:
    times = {"steady": [2.0, 2.0, 2.0], "lucky": [0.1, 3.0, 3.0], "other": [1.0, 1.0, 1.0]}
    assert fastest(times, ["steady", "lucky", "absent"]) == "steady"
    with pytest.raises(ValueError, match="no candidate to compare with was timed"):
        fastest(times, ["absent"])


def timed(fill: str, **seconds: float) -> Timed:
    names = {name.replace("_", "-").replace("--", "/"): [value] * 3 for name, value in seconds.items()}
    return Timed(batch=8, length=128, fill=fill, tokens=512, seconds=names)


def test_each_ratio_is_against_the_best_peer_of_its_kind() -> None:
    shape = timed(
        "half",
        ferry=1.0,
        ferry_int8_static=0.5,
        floor=0.8,
        optimum_plain=2.0,
        optimum_O3=1.9,
        eager=3.0,
        openvino=1.5,
        optimum_plain_int8=0.9,
        optimum_O3_int8=0.8,
        optimum_plain__sorted_4=1.2,
        optimum_plain__sorted_2=1.3,
    )
    found = {name: (ratio.median, ratio.peer) for name, ratio in compare(shape).items()}
    assert found == {
        "fp32_half_8x128": (1.9, "optimum-O3"),
        "fp32_half_sorted_8x128": (1.2, "optimum-plain/sorted-4"),
        "fp32_half_beside_8x128": (1.5, "openvino"),
        "int8_half_8x128": (1.6, "optimum-O3-int8"),
        "floor_half_8x128": (1.25, FLOOR),
    }


def test_what_was_not_measured_has_no_ratio() -> None:
    found = compare(timed("full", ferry=1.0, floor=0.8, optimum_plain=2.0, optimum_plain_int8=0.9))
    assert set(found) == {"fp32_full_8x128", "floor_8x128"}


def test_everybody_is_compared_with_ours_of_the_same_precision() -> None:
    found = compare_each(
        timed("full", ferry=1.0, ferry_int8_static=0.5, ferry_int8_qdq=1.0, eager=3.0, optimum_O3_int8=1.0, floor=0.5)
    )
    medians = {name: ratio.median for name, ratio in found.items()}
    assert medians == {"eager": 3.0, "optimum-O3-int8": 2.0, "ferry-int8-qdq": 2.0, "floor": 0.5}
