"""Accuracy and macro-F1 against scikit-learn; span F1 by hand and against conlleval's own rules."""

import random

import numpy as np
import pytest

from pipeline.tasks.metrics import accuracy, macro_f1, span_f1, tag_spans


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


@pytest.mark.parametrize(
    ("tags", "spans"),
    [
        ("O O", set()),
        ("B-x I-x O", {(0, 2, "x")}),
        ("B-x B-x", {(0, 1, "x"), (1, 2, "x")}),
        ("I-x I-x", {(0, 2, "x")}),
        ("O I-x", {(1, 2, "x")}),
        ("B-x I-y I-y", {(0, 1, "x"), (1, 3, "y")}),
        ("B-x O I-x", {(0, 1, "x"), (2, 3, "x")}),
        ("I-x B-x I-x", {(0, 1, "x"), (1, 3, "x")}),
        ("B-a-b I-a-b I-a", {(0, 2, "a-b"), (2, 3, "a")}),
        ("NOUN B-x DET", {(1, 2, "x")}),
        ("B- I- O", set()),
        ("", set()),
    ],
)
def test_spans(tags: str, spans: set[tuple[int, int, str]]) -> None:
    assert tag_spans(tags.split()) == spans


def test_span_f1_by_hand() -> None:
    expected = [["B-x", "I-x", "O", "B-y"], ["O", "O"], ["B-x"]]
    predicted = [["B-x", "I-x", "O", "B-x"], ["O", "B-y"], ["B-x"]]
    # Right: 3 spans; found: 4; hit: (0, 2, x) and the last sentence's. P 2/4, R 2/3, F1 = 2·2 / (4 + 3).
    assert span_f1(predicted, expected) == pytest.approx(4 / 7)
    assert span_f1(expected, expected) == 1.0
    assert span_f1([["O"]], [["O"]]) == 0.0
    assert span_f1([["O"]], [["B-x"]]) == 0.0
    # A span that ends elsewhere is no hit.
    assert span_f1([["B-x", "I-x", "I-x"]], [["B-x", "I-x", "O"]]) == 0.0


def conlleval(predicted: list[list[str]], expected: list[list[str]]) -> float:
    """Counts word by word as conlleval's documentation describes it, with starts and ends of chunks."""
    pairs = []
    for own, true in zip(predicted, expected, strict=True):
        pairs += [*zip(own, true, strict=True), ("O", "O")]

    def kind(tag: str) -> str:
        return tag[2:] if tag != "O" else ""

    def starts(before: str, tag: str) -> bool:
        return tag != "O" and (tag[0] == "B" or before == "O" or kind(before) != kind(tag))

    def ends(before: str, tag: str) -> bool:
        return before != "O" and (tag[0] in "BO" or kind(before) != kind(tag))

    hits = found = right = 0
    inside = False
    last_own = last_true = "O"
    for own, true in pairs:
        own_ends, true_ends = ends(last_own, own), ends(last_true, true)
        if inside and (own_ends or true_ends):
            hits += own_ends and true_ends
            inside = False
        own_starts, true_starts = starts(last_own, own), starts(last_true, true)
        inside = inside or (own_starts and true_starts and kind(own) == kind(true))
        found += own_starts
        right += true_starts
        last_own, last_true = own, true
    return 2 * hits / (found + right) if found + right else 0.0


@pytest.mark.parametrize("seed", range(30))
def test_span_f1_against_counting_word_by_word(seed: int) -> None:
    generator = random.Random(seed)
    tags = ["O", "B-x", "I-x", "B-y", "I-y"]
    expected = [[generator.choice(tags) for _ in range(generator.randint(1, 8))] for _ in range(20)]
    predicted = [[tag if generator.random() < 0.6 else generator.choice(tags) for tag in own] for own in expected]
    assert span_f1(predicted, expected) == pytest.approx(conlleval(predicted, expected), abs=1e-12)


@pytest.mark.parametrize(("predicted", "expected"), [([], []), ([["O"]], [["O", "O"]]), ([["O"]], [["O"], ["O"]])])
def test_span_f1_refuses(predicted: list[list[str]], expected: list[list[str]]) -> None:
    with pytest.raises(ValueError, match="must be tags of the same sentences, one a word"):
        span_f1(predicted, expected)
