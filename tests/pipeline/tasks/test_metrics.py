"""Accuracy and macro-F1 against scikit-learn."""

import numpy as np
import pytest

from pipeline.tasks.metrics import accuracy, macro_f1


@pytest.mark.parametrize("seed", range(20))
def test_against_scikit_learn(seed: int) -> None:
    metrics = pytest.importorskip("sklearn.metrics", reason="scikit-learn is a development dependency")
    generator = np.random.default_rng(seed)
    num_labels, rows = generator.integers(1, 12), generator.integers(1, 60)
    expected = generator.integers(0, num_labels, rows)
    predicted = np.where(generator.random(rows) < 0.6, expected, generator.integers(0, num_labels, rows))
    assert accuracy(predicted, expected) == pytest.approx(metrics.accuracy_score(expected, predicted), abs=1e-12)
    f1 = metrics.f1_score(expected, predicted, average="macro", zero_division=0)
    assert macro_f1(predicted, expected) == pytest.approx(f1, abs=1e-12)


def test_by_hand() -> None:
    predicted, expected = np.array([0, 0, 1, 3]), np.array([0, 1, 1, 0])
    assert accuracy(predicted, expected) == 0.5
    # 0: 2/4; 1: 2/3; 2 occurs nowhere; 3: 0
    assert macro_f1(predicted, expected) == pytest.approx((1 / 2 + 2 / 3 + 0) / 3)


@pytest.mark.parametrize("metric", [accuracy, macro_f1])
@pytest.mark.parametrize(
    ("predicted", "expected"),
    [(np.zeros(2, int), np.zeros(3, int)), (np.zeros(0, int), np.zeros(0, int)), (np.zeros((2, 3)), np.zeros((2, 3)))],
)
def test_refuses_shapes(metric, predicted, expected) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match="must be \\(rows,\\) label indices"):
        metric(predicted, expected)
