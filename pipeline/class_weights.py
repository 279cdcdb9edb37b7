"""CLASS_WEIGHTS: what each label weighs in the loss, from how often training has it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Weights = npt.NDArray[np.float32]


def no_weights(counts: npt.NDArray[Any]) -> Weights | None:
    """Every answer counts alike."""
    return None


def balanced_weights(counts: npt.NDArray[Any]) -> Weights | None:
    """Every label counts alike: answers / (labels · answers of the label), (labels,); 1 for a label without an answer.

    Source: "Logistic Regression in Rare Events Data", section 4.2 (weighting).
    """
    weights = counts.sum() / (np.count_nonzero(counts) * np.maximum(counts, 1))
    balanced: Weights = np.where(counts > 0, weights, 1.0).astype(np.float32)
    return balanced


# Each takes the number of answers of each label in the training split, (labels,).
CLASS_WEIGHTS: dict[str, Callable[[npt.NDArray[Any]], Weights | None]] = {
    "none": no_weights,
    "balanced": balanced_weights,
}
