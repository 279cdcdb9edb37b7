"""One label for each word of a text: cross-entropy at first pieces to learn it, span F1 to judge it.

Where any tag is BIO (B-x begins a span, I-x goes on), the best checkpoint is the one with the highest span F1. Where
none is, as with parts of speech, accuracy decides.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from export.contract import NO_ANSWER, TOKEN_CLASSIFICATION
from export.model import describe_model
from export.tokenizer import Tokenizer
from pipeline.config import ModelConfig
from pipeline.data.conll import OUTSIDE, make_spans
from pipeline.data.dataset import Split
from pipeline.data.examples import Examples, encode_sentences
from pipeline.tasks.encoder import encoder_config
from pipeline.tasks.metrics import accuracy, macro_f1, span_f1


class TokenTagging:
    """The task `token-classification`."""

    name = TOKEN_CLASSIFICATION
    per_token = True

    def __init__(self, *, labels: Sequence[str], label_smoothing: float, class_weights: Tensor | None) -> None:
        """Choose the loss, which leaves out tokens that begin no word, and the metric that chooses the checkpoint."""
        self.labels = labels
        self.has_spans = make_spans(labels)
        self.best_metric = "span_f1" if self.has_spans else "accuracy"
        self.loss_function = nn.CrossEntropyLoss(
            weight=class_weights, ignore_index=NO_ANSWER, label_smoothing=label_smoothing
        )

    @staticmethod
    def describe(model: ModelConfig, *, vocab_size: int, labels: list[str]) -> dict[str, Any]:
        """Build config.json from the run's configuration and what the data decided.

        Raises:
            ValueError: if the parts of the model do not fit each other.
        """
        encoder = encoder_config(model, vocab_size=vocab_size)
        return describe_model(TOKEN_CLASSIFICATION, encoder, pooling=None, head=model.head, labels=labels)

    @staticmethod
    def corpus(split: Split) -> Iterator[str]:
        """Return the texts that the tokenizer is trained on."""
        return (" ".join(words) for words in split.inputs)

    @staticmethod
    def encode(tokenizer: Tokenizer, split: Split, *, progress: str | None = None) -> Examples:
        """Turn a split into ids and one target a word, at its first piece."""
        return encode_sentences(tokenizer, split.inputs, split.targets, progress=progress)

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the mean cross-entropy in nats; logits (B, T, labels) float, targets (B, T) int64."""
        loss: Tensor = self.loss_function(logits.flatten(0, 1), targets.flatten())
        return loss

    def score(self, predicted: npt.NDArray[np.int64], split: Split, examples: Examples) -> dict[str, float]:
        """Return the metrics of a split; predicted (answers,) label indices in the split's order.

        Accuracy and macro-F1 are over the words that the model read; a span whose words were cut off counts as missed.
        """
        answered = examples.targets != NO_ANSWER
        expected = examples.targets[answered]
        metrics = {"accuracy": accuracy(predicted, expected), "macro_f1": macro_f1(predicted, expected)}
        if self.has_spans:
            counts = np.add.reduceat(answered.astype(np.int64), examples.starts[:-1])
            by_row = np.split(predicted, np.cumsum(counts)[:-1])
            metrics["span_f1"] = span_f1(
                [self._tags(own, len(wanted)) for own, wanted in zip(by_row, split.targets, strict=True)],
                [self._tags(wanted, len(wanted)) for wanted in split.targets],
            )
        return metrics

    def _tags(self, indices: npt.NDArray[np.int64], words: int) -> list[str]:
        return [self.labels[index] for index in indices] + [OUTSIDE] * (words - len(indices))
