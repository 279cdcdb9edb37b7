"""From times to ratios: paired within a repetition, the median and its 95 % interval by the bootstrap.

Source: Efron and Tibshirani, "An Introduction to the Bootstrap", section 13.3 (percentile intervals).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

SEED = 0
RESAMPLES = 5_000
# The share of resampled medians below and above the interval.
TAIL = 0.025


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """How many times as long the one takes as the other, in the median of the repetitions, and its 95 % interval.

    `peer` names whom ours was compared with.
    """

    median: float
    low: float
    high: float
    peer: str


def paired_ratio(above: Sequence[float], below: Sequence[float], *, peer: str) -> Ratio:
    """Divide times of the same repetitions.

    The interval resamples the repetitions, with a fixed seed: 95 % of the resampled medians lie in it.

    Raises:
        ValueError: if there are not as many times of the one as of the other, or none.
    """
    if len(above) != len(below) or not above:
        raise ValueError(f"times must be paired; got {len(above)} and {len(below)}.")
    ratios = np.asarray(above) / np.asarray(below)
    chosen = np.random.default_rng(SEED).integers(0, len(ratios), (RESAMPLES, len(ratios)))
    low, high = np.quantile(np.median(ratios[chosen], axis=1), (TAIL, 1 - TAIL))
    return Ratio(
        median=round(float(np.median(ratios)), 4), low=round(float(low), 4), high=round(float(high), 4), peer=peer
    )


def fastest(times: Mapping[str, Sequence[float]], names: Iterable[str]) -> str:
    """Return the candidate with the smallest median.

    Raises:
        ValueError: if none of them was timed.
    """
    timed = [name for name in names if name in times]
    if not timed:
        raise ValueError("no candidate to compare with was timed.")
    return min(timed, key=lambda name: float(np.median(times[name])))
