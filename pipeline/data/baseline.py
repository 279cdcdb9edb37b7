"""The linear baseline that a trained encoder must beat: TF-IDF and a linear SVM.

    python -m pipeline.data.baseline [--data NAME]

Word 1–2-grams and character 2–5-grams, each at several C; the better on validation is scored on test. It is trained on
the training split alone, as the encoder is. About two minutes on two cores and 2 GB. A development tool: it needs
scikit-learn.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.data.dataset import Dataset, load_dataset
from pipeline.tasks.metrics import accuracy, macro_f1

# All of this was chosen on validation. A word keeps its `+`, or `GPLv2+` would be `GPLv2`, and may be one character.
FEATURES: dict[str, dict[str, Any]] = {
    "word 1-2-grams": {"ngram_range": (1, 2), "token_pattern": r"\w+\+?", "sublinear_tf": True},
    "character 2-5-grams": {"ngram_range": (2, 5), "analyzer": "char", "min_df": 2, "sublinear_tf": True},
}
# For both, 0.3 and 10 were worse on validation; at 10 the characters take two minutes more.
COSTS = (1.0, 3.0)
# liblinear's default of 1e-4 gives the same accuracy in twice the time.
TOLERANCE = 0.1


@dataclass(frozen=True)
class Score:
    """Accuracy and macro-F1, each 0 … 1."""

    accuracy: float
    macro_f1: float


@dataclass(frozen=True)
class Baseline:
    """Every candidate's score on validation, the best of them, and its score on test."""

    validation: dict[tuple[str, float], Score]
    best: tuple[str, float]
    test: Score


def run_baseline(dataset: Dataset, *, costs: Sequence[float] = COSTS, jobs: int = -1) -> Baseline:
    """Fit each candidate on train, choose by validation accuracy (then macro-F1), score the chosen one on test.

    Args:
        dataset: the texts and labels.
        costs: the values of the SVM's C to try.
        jobs: how many fits run at once, each in a process of its own; −1 is one a core.

    Raises:
        ImportError: if scikit-learn is not installed.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.utils.parallel import Parallel, delayed

    held_out = {"validation": dataset.validation, "test": dataset.test}
    scores: dict[str, dict[tuple[str, float], Score]] = {split: {} for split in held_out}
    for name, settings in FEATURES.items():
        vectorizer = TfidfVectorizer(**settings)
        train = vectorizer.fit_transform(dataset.train.texts)
        features = {split: vectorizer.transform(own.texts) for split, own in held_out.items()}
        fits = Parallel(n_jobs=jobs)(
            delayed(_fit_and_predict)(cost, train, dataset.train.labels, features) for cost in costs
        )
        for cost, predictions in zip(costs, fits, strict=True):
            for split, predicted in predictions.items():
                expected = np.array(held_out[split].labels)
                scores[split][name, cost] = Score(accuracy(predicted, expected), macro_f1(predicted, expected))
    validation = scores["validation"]
    best = max(validation, key=lambda candidate: (validation[candidate].accuracy, validation[candidate].macro_f1))
    return Baseline(validation, best, scores["test"][best])


def _fit_and_predict(cost: float, train: Any, labels: list[int], features: dict[str, Any]) -> dict[str, Any]:
    from sklearn.svm import LinearSVC

    classifier = LinearSVC(C=cost, tol=TOLERANCE, random_state=0).fit(train, labels)
    return {split: classifier.predict(own) for split, own in features.items()}


def describe(baseline: Baseline) -> str:
    """The scores in percent as text; the test accuracy is the last number."""
    lines = [f"{'features':<20}  {'C':>4}  {'validation accuracy':>19}  {'macro-F1':>8}"]
    for (name, cost), score in baseline.validation.items():
        mark = "  <- best" if (name, cost) == baseline.best else ""
        lines.append(f"{name:<20}  {cost:>4}  {100 * score.accuracy:>19.2f}  {100 * score.macro_f1:>8.2f}{mark}")
    lines.append(f"test macro-F1 {100 * baseline.test.macro_f1:.2f}")
    lines.append(f"test accuracy {100 * baseline.test.accuracy:.2f}")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m pipeline.data.baseline", description="Score the linear baseline.")
    parser.add_argument("--data", default="licences", help="the name of a data set (default: licences)")
    options = parser.parse_args(arguments)
    try:
        dataset = load_dataset(options.data)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    try:
        baseline = run_baseline(dataset)
    except ImportError:
        print("The baseline needs scikit-learn, which is not installed. Run: pip install scikit-learn", file=sys.stderr)
        return 2
    print(describe(baseline), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
