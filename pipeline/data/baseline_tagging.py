"""The linear baseline for tagging words: an SVM on each word, its shape and affixes, and the words around it.

Words are tagged one by one, so nothing keeps a span together; features are hashed, so memory doesn't grow with the
vocabulary. A development tool: it needs scikit-learn.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from pipeline.data.conll import make_spans
from pipeline.data.dataset import SPLITS, Dataset, Split
from pipeline.tasks.metrics import accuracy, span_f1

COSTS = (0.1, 0.3)
# liblinear's default of 1e-4 takes several times as long.
TOLERANCE = 0.1
# Collisions are few: the features of a hundred thousand words are some 10^5.
_HASHED_FEATURES = 1 << 20
_WINDOW = 2
_LONGEST_AFFIX = 4


@dataclass(frozen=True)
class TagScore:
    """Span F1 (0 where tags are plain) and the accuracy over words, each 0 … 1."""

    span_f1: float
    accuracy: float


@dataclass(frozen=True)
class TaggingBaseline:
    """Every C's score on validation, the best of them, and its score on test; `spans` says what is ranked by."""

    validation: dict[float, TagScore]
    best: float
    test: TagScore
    spans: bool

    def describe(self) -> str:
        """The scores in percent as text; what candidates are ranked by is the last number."""
        lines = [f"{'C':>4}  {'validation span F1':>18}  {'word accuracy':>13}"]
        for cost, score in self.validation.items():
            mark = "  <- best" if cost == self.best else ""
            lines.append(f"{cost:>4}  {100 * score.span_f1:>18.2f}  {100 * score.accuracy:>13.2f}{mark}")
        tests = [f"test word accuracy {100 * self.test.accuracy:.2f}"]
        if self.spans:
            tests.append(f"test span F1 {100 * self.test.span_f1:.2f}")
        return "\n".join([*lines, *tests]) + "\n"


def run_tagging_baseline(dataset: Dataset, *, costs: Sequence[float] = COSTS) -> TaggingBaseline:
    """Fit each C on train, choose by validation span F1 (word accuracy if tags are plain), score the best on test.

    Raises:
        ImportError: if scikit-learn is not installed.
    """
    from sklearn.feature_extraction import FeatureHasher
    from sklearn.svm import LinearSVC

    hasher = FeatureHasher(n_features=_HASHED_FEATURES, input_type="string", alternate_sign=False)
    features = {name: hasher.transform(_all_features(getattr(dataset, name))) for name in SPLITS}
    targets = np.concatenate(list(dataset.train.targets))
    spans = make_spans(dataset.labels)
    scores: dict[str, dict[float, TagScore]] = {"validation": {}, "test": {}}
    for cost in costs:
        classifier = LinearSVC(C=cost, tol=TOLERANCE, random_state=0).fit(features["train"], targets)
        for name, own in scores.items():
            own[cost] = _score(classifier.predict(features[name]), getattr(dataset, name), dataset.labels)
    validation = scores["validation"]
    best = max(costs, key=lambda cost: (validation[cost].span_f1 if spans else 0.0, validation[cost].accuracy))
    return TaggingBaseline(validation, best, scores["test"][best], spans)


def _score(predicted: npt.NDArray[Any], split: Split, labels: list[str]) -> TagScore:
    targets = [np.asarray(own) for own in split.targets]
    ends = np.cumsum([len(own) for own in targets])
    rows = np.split(predicted, ends[:-1])
    return TagScore(
        span_f1([[labels[tag] for tag in row] for row in rows], [[labels[tag] for tag in own] for own in targets]),
        accuracy(predicted, np.concatenate(targets)),
    )


def _all_features(split: Split) -> Iterator[list[str]]:
    for words in cast(Sequence[list[str]], split.inputs):
        padded = ["<s>"] * _WINDOW + words + ["</s>"] * _WINDOW
        for index in range(len(words)):
            yield _features(padded[index : index + 2 * _WINDOW + 1])


def _features(window: list[str]) -> list[str]:
    """The features of the middle word of a window of 2·_WINDOW + 1 words."""
    word = window[_WINDOW]
    lower = word.lower()
    features = ["bias", f"word={word}", f"shape={_shape(word)}"]
    features += [f"{offset}={near.lower()}" for offset, near in enumerate(window, start=-_WINDOW)]
    features += [f"{offset}shape={_shape(window[_WINDOW + offset])}" for offset in (-1, 1)]
    features += [f"start={lower[:size]}" for size in range(1, _LONGEST_AFFIX + 1)]
    features += [f"end={lower[-size:]}" for size in range(1, _LONGEST_AFFIX + 1)]
    before, after = window[_WINDOW - 1].lower(), window[_WINDOW + 1].lower()
    return [*features, f"-1,0={before} {lower}", f"0,1={lower} {after}"]


def _shape(word: str) -> str:
    """Capitals, small letters and digits as X, x and 0, runs of them once."""
    return re.sub(r"(.)\1+", r"\1", "".join(map(_kind, word)))


def _kind(char: str) -> str:
    if char.isalpha():
        return "X" if char.isupper() else "x"
    return "0" if char.isdigit() else char
