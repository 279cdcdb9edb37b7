"""Accuracy and macro-F1 of predicted label indices, and span F1 of predicted tags."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from export.proof import f1


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
    return f1.macro_f1(predicted, expected)


def span_f1(predicted: Sequence[Sequence[str]], expected: Sequence[Sequence[str]]) -> float:
    """Return the micro F1 of exact spans, 0 … 1, as the CoNLL-2000 script conlleval computes it; 0 without any span.

    Args:
        predicted: for each sentence its words' BIO tags; a tag without `B-` or `I-` is outside every span.
        expected: the same for the right tags.

    Raises:
        ValueError: if there are no sentences, or their numbers or lengths differ.
    """
    if not len(predicted) or [len(tags) for tags in predicted] != [len(tags) for tags in expected]:
        raise ValueError(
            "predicted and expected must be tags of the same sentences, one a word, with at least one sentence; "
            f"got {len(predicted)} and {len(expected)} sentences. Cut both at the same words."
        )
    hits = found = right = 0
    for own, true in zip(predicted, expected, strict=True):
        spans, true_spans = tag_spans(own), tag_spans(true)
        hits += len(spans & true_spans)
        found += len(spans)
        right += len(true_spans)
    # 2·P·R / (P + R) with P = hits / found and R = hits / right.
    return 2 * hits / (found + right) if found + right else 0.0


def tag_spans(tags: Sequence[str]) -> set[tuple[int, int, str]]:
    """Return the spans of a sentence: first word, word behind the last, type.

    `B-x` starts a span, and so does `I-x` that does not follow `B-x` or `I-x`, as in conlleval.
    """
    spans: set[tuple[int, int, str]] = set()
    start, kind = 0, ""
    for index, tag in enumerate([*tags, ""]):
        prefix, _, own = tag.partition("-")
        inside = own if prefix in ("B", "I") else ""
        if kind and (prefix == "B" or inside != kind):
            spans.add((start, index, kind))
            kind = ""
        if inside and not kind:
            start, kind = index, inside
    return spans


def _check(predicted: npt.NDArray[Any], expected: npt.NDArray[Any]) -> None:
    if predicted.ndim != 1 or predicted.shape != expected.shape or not predicted.size:
        raise ValueError(
            "predicted and expected must be (rows,) label indices, with at least one row; "
            f"got {predicted.shape} and {expected.shape}. Take the argmax of the logits over the labels first."
        )
