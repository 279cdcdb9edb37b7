"""The linear baseline that a trained encoder must beat: an SVM on TF-IDF, or for tagging on the words around each word.

    python -m pipeline.data.baseline [--data NAME | --data FILE … [--validation FILE …] [--test FILE …]]

Texts: word 1–2-grams and character 2–5-grams, each at several C; the better on validation is scored on test. Words: the
same with the features of baseline_tagging.py. It is trained on the training split alone, as the encoder is. On the
built-in data it takes about two minutes on two cores and 2 GB. A development tool: it needs scikit-learn.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from export.contract import TOKEN_CLASSIFICATION
from pipeline.config import DataConfig
from pipeline.data.baseline_tagging import run_tagging_baseline
from pipeline.data.dataset import DATASETS, Dataset
from pipeline.data.own import open_data
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
NO_SCIKIT_LEARN = "The baseline needs scikit-learn, which is not installed. Run: pip install scikit-learn"


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
        train = vectorizer.fit_transform(dataset.train.inputs)
        features = {split: vectorizer.transform(own.inputs) for split, own in held_out.items()}
        fits = Parallel(n_jobs=jobs)(
            delayed(_fit_and_predict)(cost, train, dataset.train.targets, features) for cost in costs
        )
        for cost, predictions in zip(costs, fits, strict=True):
            for split, predicted in predictions.items():
                expected = cast(npt.NDArray[np.int64], held_out[split].targets)
                scores[split][name, cost] = Score(accuracy(predicted, expected), macro_f1(predicted, expected))
    validation = scores["validation"]
    best = max(validation, key=lambda candidate: (validation[candidate].accuracy, validation[candidate].macro_f1))
    return Baseline(validation, best, scores["test"][best])


def _fit_and_predict(cost: float, train: Any, labels: Any, features: dict[str, Any]) -> dict[str, Any]:
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


def _parse(arguments: Sequence[str] | None) -> DataConfig:
    parser = argparse.ArgumentParser(prog="python -m pipeline.data.baseline", description="Score the linear baseline.")
    parser.add_argument(
        "--data", nargs="+", default=["licences"], help="a built-in data set, or files and folders (default: licences)"
    )
    for split in ("validation", "test"):
        parser.add_argument(f"--{split}", nargs="+", default=[], help=f"files for {split}; without any, cut from data")
    parser.add_argument("--text", default="", help="the text column's name")
    parser.add_argument("--label", default="", help="the label column's name")
    parser.add_argument("--none-label", default="", help="the label of rows that fit no class; they are left out")
    options = parser.parse_args(arguments)
    own = {
        "validation": tuple(options.validation),
        "test": tuple(options.test),
        "text": options.text,
        "label": options.label,
        "none_label": options.none_label,
    }
    if len(options.data) == 1 and (options.data[0] in DATASETS or _is_bare_name(options.data[0])):
        return DataConfig(name=options.data[0], **own)
    return DataConfig(train=tuple(options.data), **own)


def _is_bare_name(word: str) -> bool:
    """Whether a word is more likely a misspelt data set than a file."""
    return not Path(word).exists() and Path(word).name == word and not Path(word).suffix


def main(arguments: Sequence[str] | None = None) -> int:
    config = _parse(arguments)
    with tempfile.TemporaryDirectory(prefix="ferry-baseline-") as scratch:
        try:
            dataset = open_data(config).load(Path(scratch))
        except ValueError as error:
            print(error, file=sys.stderr)
            return 2
        for note in dataset.notes:
            print(note, file=sys.stderr)
        try:
            if dataset.task == TOKEN_CLASSIFICATION:
                print(run_tagging_baseline(dataset).describe(), end="")
            else:
                print(describe(run_baseline(dataset)), end="")
        except ImportError:
            print(NO_SCIKIT_LEARN, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
