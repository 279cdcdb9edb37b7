"""Balanced weights, against scikit-learn's."""

import numpy as np
import pytest
from sklearn.utils.class_weight import compute_class_weight

from pipeline.class_weights import CLASS_WEIGHTS


def test_balanced_weights_are_scikit_learns():
    targets = np.repeat([0, 1, 2], [70, 25, 5])
    weights = CLASS_WEIGHTS["balanced"](np.bincount(targets))
    wanted = compute_class_weight("balanced", classes=np.arange(3), y=targets)
    assert weights == pytest.approx(wanted)
    assert weights.dtype == np.float32


def test_a_label_that_training_lacks_weighs_one():
    weights = CLASS_WEIGHTS["balanced"](np.array([6, 0, 2]))
    assert weights == pytest.approx([8 / 12, 1.0, 8 / 4])


def test_a_single_answer_weighs_most():
    assert CLASS_WEIGHTS["balanced"](np.array([3, 1])) == pytest.approx([4 / 6, 4 / 2])


def test_none_weighs_nothing():
    assert CLASS_WEIGHTS["none"](np.array([6, 2])) is None
