"""Macro-F1 of predicted label indices."""

from typing import Any

import numpy as np
import numpy.typing as npt


def macro_f1(predicted: npt.NDArray[Any], expected: npt.NDArray[Any]) -> float:
    """Return the mean F1 of the labels that occur among the predicted or the expected ones, 0 … 1.

    The F1 of a label is 2·TP / (2·TP + FP + FN), as in scikit-learn's `f1_score(average="macro")`.

    Args:
        predicted: (answers,) label indices, 0 or greater, at least one.
        expected: (answers,) label indices, 0 or greater.
    """
    length = int(max(predicted.max(), expected.max())) + 1
    # 2·TP + FP + FN is how often the label was predicted plus how often it was expected.
    named = np.bincount(predicted, minlength=length) + np.bincount(expected, minlength=length)  # (labels)
    hits = np.bincount(expected[predicted == expected], minlength=length)
    occurs = named > 0
    return float(np.mean(2 * hits[occurs] / named[occurs]))
