"""The temperature minimises the likelihood, bins and thresholds are those worked out by hand."""

import numpy as np
import pytest

from export.artifact.load import decide, softmax
from pipeline.calibration import (
    COLDEST,
    HOTTEST,
    calibration_error,
    choose_threshold,
    fit_temperature,
    reliability,
)


def drawn(temperature, rows=4000, labels=5):
    """Logits of a model that is off by a temperature: the labels are drawn from softmax(logits / temperature)."""
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 3, (rows, labels))
    probabilities = softmax(logits, temperature)
    expected = np.array([rng.choice(labels, p=row) for row in probabilities])
    return logits, expected


def likelihood(logits, expected, temperature):
    return np.log(softmax(logits, temperature)[np.arange(len(logits)), expected]).mean()


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.5])
def test_the_temperature_of_drawn_labels_is_found(temperature):
    logits, expected = drawn(temperature)
    found = fit_temperature(logits, expected)
    # 4,000 drawn labels place it within a twentieth.
    assert found == pytest.approx(temperature, rel=0.05)
    best = likelihood(logits, expected, found)
    assert best >= likelihood(logits, expected, found * 1.01)
    assert best >= likelihood(logits, expected, found / 1.01)
    assert found == float(f"{found:.6g}")


def test_calibration_makes_the_error_smaller():
    logits, expected = drawn(2.5)
    errors = []
    for temperature in (1.0, fit_temperature(logits, expected)):
        probabilities = softmax(logits, temperature)
        errors.append(calibration_error(probabilities.max(1), probabilities.argmax(1) == expected))
    assert errors[0] > 0.1
    assert errors[1] < 0.02


@pytest.mark.parametrize("right", [True, False])
def test_few_answers_do_not_make_a_model_sure_or_unsure_of_everything(right):
    logits = np.tile([[3.0, 0.0], [0.0, 3.0]], (10, 1))
    expected = np.tile([0, 1] if right else [1, 0], 10)
    few, many = fit_temperature(logits, expected), fit_temperature(*(np.repeat(x, 500, 0) for x in (logits, expected)))
    assert COLDEST < many < few < 1 if right else 1 < few < many <= HOTTEST
    if right:
        assert few > 0.5


def test_calibration_error_by_hand():
    # Bin 2 of 15 holds 0.16 and 0.18, bin 14 holds 0.95 twice and 1.0.
    confidence = np.array([0.16, 0.18, 0.95, 0.95, 1.0])
    correct = np.array([False, True, True, True, False])
    bins = reliability(confidence, correct)
    assert [(row.low, row.share) for row in bins] == [(2 / 15, 0.4), (14 / 15, 0.6)]
    assert [row.accuracy for row in bins] == [0.5, pytest.approx(2 / 3)]
    wanted = 0.4 * abs(0.5 - 0.17) + 0.6 * abs(2 / 3 - 2.9 / 3)
    assert calibration_error(confidence, correct) == pytest.approx(wanted)


def test_the_threshold_rejects_no_more_right_answers_than_allowed():
    confidence = np.linspace(0.0001, 0.9, 1000)
    correct = np.ones(1000, bool)
    correct[:200] = False
    threshold = choose_threshold(confidence, correct, np.empty(0), rejected_share=0.05)
    assert ((confidence < threshold) & correct).sum() <= 0.05 * correct.sum()
    # One step higher rejects more.
    assert ((confidence < threshold + 0.002) & correct).sum() > 0.05 * correct.sum()
    assert threshold == round(threshold, 4)


def test_a_share_of_nothing_turns_the_threshold_off():
    confidence, correct = np.array([0.3, 0.9]), np.array([True, True])
    assert choose_threshold(confidence, correct, np.empty(0), rejected_share=0.0) == 0.0
    assert choose_threshold(confidence, ~correct, np.empty(0), rejected_share=0.5) == 0.0
    assert choose_threshold(confidence, ~correct, np.array([0.2]), rejected_share=0.5) == 0.0


def test_texts_that_fit_no_class_choose_the_threshold():
    confidence = np.array([0.4, 0.7, 0.8, 0.9])
    correct = np.array([True, True, True, True])
    none = np.array([0.1, 0.2, 0.5, 0.6])
    threshold = choose_threshold(confidence, correct, none, rejected_share=0.01)
    # All four strangers rejected for one right answer.
    assert 0.6 < threshold <= 0.7


def test_a_threshold_leaves_room_above():
    confidence, correct = np.full(50, 1.0), np.ones(50, bool)
    assert choose_threshold(confidence, correct, np.empty(0), rejected_share=0.01) == 0.5
    assert choose_threshold(confidence, correct, np.array([0.9999]), rejected_share=0.01) == 0.99


def test_decide_applies_temperature_and_threshold():
    logits = np.array([[2.0, 0.0], [0.1, 0.0]], np.float32)
    sharp = 1 / (1 + np.exp(-2 / 0.5))
    assert decide(logits, ["a", "b"], 0.5, 0.6) == [
        ("a", pytest.approx(sharp)),
        (None, pytest.approx(1 / (1 + np.exp(-0.2)))),
    ]
    # A probability at the threshold is kept.
    (_, probability) = decide(logits, ["a", "b"], 1.0, 0.0)[0]
    assert decide(logits, ["a", "b"], 1.0, probability)[0] == ("a", probability)
