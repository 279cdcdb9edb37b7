"""Probabilities that mean what they say: one temperature, and the threshold below which no label is given.

Both are chosen on validation and stored as metadata that every loader applies.
Source: "On Calibration of Modern Neural Networks", sections 2 (expected calibration error) and 4.2 (temperature).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from export.artifact.load import softmax

Array = npt.NDArray[Any]

# Section 2 of the source measures with 15 bins of equal width.
BINS = 15
# A model whose best temperature lies outside has learned nothing or everything; probabilities stay numbers in between.
COLDEST, HOTTEST = 0.05, 20.0
# Of the temperatures fitted on large validation splits here, from 0.5 to 1.7, most lie within this of 1, in log T.
PRIOR_WIDTH = 0.5
# Without texts that fit no class, a label more probable than all others together is never rejected; with them, loaders
# must still be able to tell a probability from the threshold.
_MOST_WITHOUT_NONE, _MOST = 0.5, 0.99
# Halvings of the interval of log T: 2⁻⁴⁰ of its width is below what six digits show.
_HALVINGS = 40
_DIGITS = 6
_THRESHOLD_STEPS = 10_000


def fit_temperature(logits: Array, expected: Array) -> float:
    """Return the most probable temperature: likelihood of softmax(logits / T) times a prior that wants T near 1.

    Many answers outvote the prior; few right ones do not make a model sure of everything. Found by bisection of the
    slope by log T, and rounded to six digits, the number that metadata holds.

    Args:
        logits: (answers, labels) float.
        expected: (answers,) label indices.
    """
    logits = logits.astype(np.float64)
    right = logits[np.arange(len(logits)), expected]

    def slope(log_t: float) -> float:
        """Return the derivative, by log T, of the negative logarithm of likelihood and prior."""
        temperature = float(np.exp(log_t))
        surplus = float(((softmax(logits, temperature) * logits).sum(axis=1) - right).sum())
        return -surplus / temperature + log_t / PRIOR_WIDTH**2

    low, high = np.log(COLDEST), np.log(HOTTEST)
    for _ in range(_HALVINGS):
        middle = float(low + high) / 2
        low, high = (low, middle) if slope(middle) > 0 else (middle, high)
    return float(f"{np.exp((low + high) / 2):.{_DIGITS}g}")


def calibration_error(confidence: Array, correct: Array) -> float:
    """Return the expected calibration error, 0 … 1: the mean distance of confidence and accuracy over equal bins.

    Args:
        confidence: (answers,) probabilities of the labels given.
        correct: (answers,) bool, whether they are right.
    """
    return sum(abs(row.accuracy - row.confidence) * row.share for row in reliability(confidence, correct))


@dataclass(frozen=True)
class Bin:
    """One bin of confidence: its bounds, the share of all answers in it, and their mean confidence and accuracy."""

    low: float
    high: float
    share: float
    confidence: float
    accuracy: float


def reliability(confidence: Array, correct: Array) -> list[Bin]:
    """Sort answers into bins of equal width by confidence; empty bins are left out."""
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    return [
        Bin(
            low=number / BINS,
            high=(number + 1) / BINS,
            share=float(np.mean(bins == number)),
            confidence=float(confidence[bins == number].mean()),
            accuracy=float(correct[bins == number].mean()),
        )
        for number in np.unique(bins).tolist()
    ]


def choose_threshold(confidence: Array, correct: Array, none_confidence: Array, *, rejected_share: float) -> float:
    """Return the probability below which an answer is "none of these"; 0 rejects nothing.

    With texts that fit no class, the threshold at which the share of right answers kept plus the share of those texts
    rejected is largest (Youden's index), at most 0.99. Without, the largest threshold that rejects at most
    `rejected_share` of the right answers, at most 0.5. A multiple of 0.0001.

    Args:
        confidence: (answers,) probabilities of the labels given on validation.
        correct: (answers,) bool, whether they are right.
        none_confidence: (texts,) probabilities of the labels given to texts that fit no class; may be empty.
        rejected_share: 0 … 1.
    """
    right = np.sort(confidence[correct])
    if not len(right):
        return 0.0
    if len(none_confidence):
        thresholds = np.arange(_THRESHOLD_STEPS + 1) / _THRESHOLD_STEPS
        kept = 1 - np.searchsorted(right, thresholds) / len(right)
        rejected = np.searchsorted(np.sort(none_confidence), thresholds) / len(none_confidence)
        return min(float(thresholds[np.argmax(kept + rejected)]), _MOST)
    # The right answer at this place is the first that is kept.
    first_kept = right[int(rejected_share * len(right))] if rejected_share else 0.0
    return min(float(np.floor(first_kept * _THRESHOLD_STEPS) / _THRESHOLD_STEPS), _MOST_WITHOUT_NONE)
