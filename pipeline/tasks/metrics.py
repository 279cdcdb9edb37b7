"""Accuracy and macro-F1 of predicted label indices."""

from typing import Any

import numpy as np
import numpy.typing as npt


def accuracy(predicted: npt.NDArray[Any], expected: npt.NDArray[Any]) -> float:
    """Return the share of rows whose label was predicted, 0 … 1.

    Args:
        predicted: (rows,) label indices.
        expected: (rows,) label indices.

    Raises:
        ValueError: if the shapes differ or there are no rows.
    """
    _check(predicted, expected)
    return float(np.mean(predicted == expected))


def macro_f1(predicted: npt.NDArray[Any], expected: npt.NDArray[Any]) -> float:
    """Return the mean F1 of the labels that occur among the predicted or the expected ones, 0 … 1.

    The F1 of a label is 2·TP / (2·TP + FP + FN), as in scikit-learn's `f1_score(average="macro")`.

    Args:
        predicted: (rows,) label indices, 0 or greater.
        expected: (rows,) label indices, 0 or greater.

    Raises:
        ValueError: if the shapes differ or there are no rows.
    """
    _check(predicted, expected)
    length = int(max(predicted.max(), expected.max())) + 1
    # 2·TP + FP + FN is how often the label was predicted plus how often it was expected.
    named = np.bincount(predicted, minlength=length) + np.bincount(expected, minlength=length)  # (labels)
    hits = np.bincount(expected[predicted == expected], minlength=length)
    occurs = named > 0
    return float(np.mean(2 * hits[occurs] / named[occurs]))


def _check(predicted: npt.NDArray[Any], expected: npt.NDArray[Any]) -> None:
    if predicted.ndim != 1 or predicted.shape != expected.shape or not predicted.size:
        raise ValueError(
            "predicted and expected must be (rows,) label indices, with at least one row; "
            f"got {predicted.shape} and {expected.shape}. Take the argmax of the logits over the labels first."
        )
