"""How good a trained model is on a split, label by label, and what its probabilities are worth.

Answers are reduced batch by batch, so memory does not grow with answers × labels.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from tqdm import tqdm

from export.artifact.load import softmax
from export.contract import NO_ANSWER
from pipeline.calibration import calibration_error, reliability
from pipeline.data.batching import cut_batches
from pipeline.data.examples import Examples

Array = npt.NDArray[Any]

# Logits that calibration keeps at once: 400 MB of float32. One number is fitted, so a sample of that size is plenty.
_MOST_LOGITS = 100_000_000
# Pairs of labels that the report lists; the picture shows the labels of the most frequent ones.
CONFUSIONS = 50


@dataclass(frozen=True, kw_only=True)
class Answers:
    """A model's answers to a split, in its order, each (answers,): label indices given and expected, probabilities.

    `confidence` is the given label's probability at the temperature, `raw_confidence` the one at temperature 1.
    """

    given: Array
    expected: Array
    confidence: Array
    raw_confidence: Array

    @property
    def correct(self) -> Array:
        """Whether each answer is right, (answers,) bool."""
        correct: Array = self.given == self.expected
        return correct


def run_batches(
    model: nn.Module, examples: Examples, *, batch_tokens: int, progress: str | None = None
) -> Iterator[tuple[Array, Array, Array]]:
    """Run a model over a split in eval mode, from the shortest row to the longest.

    Yields:
        The places of a batch's answers in the split's order, their logits (answers, labels) float32 and their targets.
    """
    device = next(model.parameters()).device
    rows = np.argsort(examples.lengths, kind="stable").tolist()
    # How many answers stand before each row.
    if examples.per_token:
        before = np.concatenate([[0], np.cumsum(examples.targets != NO_ANSWER)])[examples.starts[:-1]]
    else:
        before = np.arange(len(examples))
    was_training = model.training
    model.eval()
    try:
        batches = cut_batches(rows, examples.lengths.tolist(), batch_tokens=batch_tokens)
        for batch in tqdm(batches, desc=progress, unit="batch", leave=False, disable=None if progress else True):
            input_ids, attention_mask, targets = examples.batch(batch)
            with torch.inference_mode():
                output = model(torch.from_numpy(input_ids).to(device), torch.from_numpy(attention_mask).to(device))
            asked = targets != NO_ANSWER
            # Within a row answers follow each other.
            ordinal = np.cumsum(asked, axis=1) - 1 if examples.per_token else np.zeros(len(batch), np.int64)
            places = (before[batch].reshape(-1, *[1] * (asked.ndim - 1)) + ordinal)[asked]
            yield places, output.float().cpu().numpy()[asked], targets[asked]
    finally:
        model.train(was_training)


def predict(model: nn.Module, examples: Examples, *, batch_tokens: int) -> Array:
    """Return the label index of each answer of a split, (answers,), in the split's order."""
    given = np.empty(_count(examples), np.int64)
    for places, logits, _ in run_batches(model, examples, batch_tokens=batch_tokens):
        given[places] = logits.argmax(axis=1)
    return given


def sample_logits(model: nn.Module, examples: Examples, *, num_labels: int, batch_tokens: int) -> tuple[Array, Array]:
    """Return the logits (answers, labels) and targets (answers,) of a split, or of every n-th answer of a large one."""
    step = -(-_count(examples) * num_labels // _MOST_LOGITS)
    parts = []
    for places, logits, targets in run_batches(model, examples, batch_tokens=batch_tokens):
        chosen = places % step == 0
        parts.append((logits[chosen], targets[chosen]))
    return np.concatenate([part for part, _ in parts]), np.concatenate([part for _, part in parts])


def answer(
    model: nn.Module, examples: Examples, *, temperature: float, batch_tokens: int, progress: str | None = None
) -> Answers:
    """Run a model over a split and keep what the report needs of each answer."""
    count = _count(examples)
    kinds = {"given": np.int64, "expected": np.int64, "confidence": np.float64, "raw_confidence": np.float64}
    columns = {name: np.empty(count, kind) for name, kind in kinds.items()}
    for places, logits, targets in run_batches(model, examples, batch_tokens=batch_tokens, progress=progress):
        columns["given"][places] = logits.argmax(axis=1)
        columns["expected"][places] = targets
        columns["confidence"][places] = softmax(logits, temperature).max(axis=1)
        columns["raw_confidence"][places] = softmax(logits).max(axis=1)
    return Answers(**columns)


def _count(examples: Examples) -> int:
    return int((examples.targets != NO_ANSWER).sum())


def calibration_metrics(answers: Answers) -> dict[str, float]:
    """Return the expected calibration error before and after the temperature."""
    return {
        "ece_before": calibration_error(answers.raw_confidence, answers.correct),
        "ece": calibration_error(answers.confidence, answers.correct),
    }


def threshold_metrics(answers: Answers, none_confidence: Array, threshold: float) -> dict[str, float]:
    """Return what the threshold does: the share answered, the accuracy of those, and the share of none texts rejected.

    A share over nothing is left out.
    """
    kept = answers.confidence >= threshold
    metrics = {"answered": float(kept.mean())}
    if kept.any():
        metrics["accuracy_answered"] = float(answers.correct[kept].mean())
    if len(none_confidence):
        metrics["none_rejected"] = float((none_confidence < threshold).mean())
        metrics["none_rows"] = len(none_confidence)
    return metrics


def label_report(answers: Answers, labels: list[str]) -> list[dict[str, Any]]:
    """Return precision, recall, F1 and the number of expected and given answers of each label, in label order."""
    size = len(labels)
    expected = np.bincount(answers.expected, minlength=size)
    given = np.bincount(answers.given, minlength=size)
    hits = np.bincount(answers.expected[answers.correct], minlength=size)
    return [
        {
            "label": label,
            "precision": _share(hits[index], given[index]),
            "recall": _share(hits[index], expected[index]),
            "f1": _share(2 * hits[index], given[index] + expected[index]),
            "expected": int(expected[index]),
            "given": int(given[index]),
        }
        for index, label in enumerate(labels)
    ]


def _share(part: int, whole: int) -> float | None:
    """Return a share to six digits; None of nothing."""
    return round(float(part / whole), 6) if whole else None


def confusions(answers: Answers, labels: list[str]) -> list[dict[str, Any]]:
    """Return the most frequent mistakes, at most CONFUSIONS: the label expected, the one given, how often."""
    wrong = ~answers.correct
    pairs, counts = np.unique(answers.expected[wrong] * len(labels) + answers.given[wrong], return_counts=True)
    order = np.argsort(-counts, kind="stable")[:CONFUSIONS]
    return [
        {
            "expected": labels[pairs[place] // len(labels)],
            "given": labels[pairs[place] % len(labels)],
            "count": int(counts[place]),
        }
        for place in order
    ]


def evaluation_document(
    answers: Answers, labels: list[str], metrics: dict[str, dict[str, float]], pictures: dict[str, str]
) -> dict[str, Any]:
    """Build evaluation.json: the metrics of the splits, and of the test split each label, mistakes and bins.

    `pictures` are the hashes of the pictures of the same answers, by name.
    """
    return {
        "metrics": metrics,
        "labels": label_report(answers, labels),
        "confusions": confusions(answers, labels),
        "reliability": {
            "before": _bins(answers.raw_confidence, answers.correct),
            "after": _bins(answers.confidence, answers.correct),
        },
        "pictures": pictures,
    }


def _bins(confidence: Array, correct: Array) -> list[dict[str, float]]:
    return [{name: round(value, 6) for name, value in vars(row).items()} for row in reliability(confidence, correct)]
