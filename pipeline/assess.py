"""What training ends with: a temperature and a threshold chosen on validation, and one look at the test split."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from export.artifact.layout import CONFUSION_FILE, EVALUATION_FILE, RELIABILITY_FILE
from export.files import dump_json, sha256_file
from export.tokenizer import Tokenizer
from pipeline.calibration import choose_threshold, fit_temperature
from pipeline.config import RunConfig
from pipeline.data.dataset import Dataset
from pipeline.data.examples import Examples, encode_texts
from pipeline.evaluation import (
    Answers,
    Array,
    answer,
    calibration_metrics,
    evaluation_document,
    sample_logits,
    threshold_metrics,
)
from pipeline.pictures import draw_confusion, draw_reliability
from pipeline.tasks import Task


@dataclass(frozen=True, kw_only=True)
class Assessment:
    """The metrics of validation and test, and what was chosen on validation."""

    metrics: dict[str, dict[str, float]]
    temperature: float
    threshold: float


def assess(
    model: nn.Module,
    task: Task,
    dataset: Dataset,
    examples: dict[str, Examples],
    config: RunConfig,
    *,
    tokenizer: Tokenizer,
    folder: Path,
    show: bool,
) -> Assessment:
    """Calibrate on validation, judge on test, and write evaluation.json and its two pictures into `folder`."""
    budget = config.training.batch_tokens
    labels = dataset.labels
    logits, expected = sample_logits(model, examples["validation"], num_labels=len(labels), batch_tokens=budget)
    temperature = fit_temperature(logits, expected)

    def run(part: Examples, what: str) -> Answers:
        return answer(model, part, temperature=temperature, batch_tokens=budget, progress=what if show else None)

    answers = {name: run(examples[name], f"{name} split") for name in ("validation", "test")}
    none = {name: _none_confidence(dataset, name, tokenizer, run) for name in answers}
    # A word always has a tag, O where it is nothing: there is no "none of these" besides.
    threshold = (
        0.0
        if task.per_token
        else choose_threshold(
            answers["validation"].confidence,
            answers["validation"].correct,
            none["validation"],
            rejected_share=config.calibration.rejected_share,
        )
    )
    metrics = {
        name: _rounded(
            task.score(own.given, getattr(dataset, name), examples[name])
            | calibration_metrics(own)
            | threshold_metrics(own, none[name], threshold)
            | {"rows": len(examples[name]), "answers": len(own.given)}
        )
        for name, own in answers.items()
    }
    draw_confusion(folder / CONFUSION_FILE, answers["test"], labels)
    draw_reliability(folder / RELIABILITY_FILE, answers["test"], temperature=temperature)
    pictures = {name: sha256_file(folder / name) for name in (CONFUSION_FILE, RELIABILITY_FILE)}
    document = evaluation_document(answers["test"], labels, metrics, pictures)
    (folder / EVALUATION_FILE).write_text(dump_json(document))
    return Assessment(metrics=metrics, temperature=temperature, threshold=threshold)


def _none_confidence(dataset: Dataset, split: str, tokenizer: Tokenizer, run: Any) -> Array:
    """Return the probabilities of the labels given to the texts of a split that fit no class, (texts,)."""
    texts = dataset.none.get(split, ())
    if not len(texts):
        return np.empty(0)
    # They have no target; any label will do, for only the answers are used.
    answers: Answers = run(encode_texts(tokenizer, texts, np.zeros(len(texts), np.int64)), f"{split}, none of these")
    return answers.confidence


def _rounded(metrics: dict[str, float]) -> dict[str, float]:
    return {name: value if isinstance(value, int) else round(value, 6) for name, value in metrics.items()}
