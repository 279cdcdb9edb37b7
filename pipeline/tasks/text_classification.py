"""One label for a text: cross-entropy to learn it, accuracy and macro-F1 to judge it."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from export.contract import TEXT_CLASSIFICATION
from export.model import describe_model
from export.tokenizer import Tokenizer
from pipeline.config import ModelConfig
from pipeline.data.dataset import Split
from pipeline.data.examples import Examples, encode_texts
from pipeline.tasks.encoder import encoder_config
from pipeline.tasks.metrics import accuracy, macro_f1


class TextClassification:
    """The task `text-classification`; its best checkpoint is the one with the highest validation accuracy."""

    name = TEXT_CLASSIFICATION
    per_token = False
    best_metric = "accuracy"

    def __init__(self, *, labels: Sequence[str], label_smoothing: float, class_weights: Tensor | None) -> None:
        """Choose the loss; label smoothing as in Szegedy et al. 2016, section 7, class weights (labels,) or None."""
        self.loss_function = nn.CrossEntropyLoss(weight=class_weights, label_smoothing=label_smoothing)

    @staticmethod
    def describe(model: ModelConfig, *, vocab_size: int, labels: list[str]) -> dict[str, Any]:
        """Build config.json from the run's configuration and what the data decided.

        Raises:
            ValueError: if the parts of the model do not fit each other.
        """
        encoder = encoder_config(model, vocab_size=vocab_size)
        return describe_model(TEXT_CLASSIFICATION, encoder, pooling=model.pooling, head=model.head, labels=labels)

    @staticmethod
    def corpus(split: Split) -> Sequence[str]:
        """Return the texts that the tokenizer is trained on."""
        return cast(Sequence[str], split.inputs)

    @staticmethod
    def encode(tokenizer: Tokenizer, split: Split, *, progress: str | None = None) -> Examples:
        """Turn a split into ids and one target a text."""
        texts, targets = cast(Sequence[str], split.inputs), cast(npt.NDArray[np.int64], split.targets)
        return encode_texts(tokenizer, texts, targets, progress=progress)

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the mean cross-entropy in nats; logits (B, labels) float, targets (B,) int64."""
        loss: Tensor = self.loss_function(logits, targets)
        return loss

    @staticmethod
    def score(predicted: npt.NDArray[np.int64], split: Split, examples: Examples) -> dict[str, float]:
        """Return the metrics of a split; predicted (texts,) label indices in the split's order."""
        expected = np.asarray(split.targets)
        return {"accuracy": accuracy(predicted, expected), "macro_f1": macro_f1(predicted, expected)}
