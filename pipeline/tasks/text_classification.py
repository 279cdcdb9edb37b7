"""One label for a text: cross-entropy to learn it, accuracy and macro-F1 to judge it."""

from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from export.model import TASK, describe_model
from models.config import EncoderConfig
from pipeline.config import ModelConfig
from pipeline.tasks.metrics import accuracy, macro_f1


class TextClassification:
    """The task `text-classification`; its best checkpoint is the one with the highest validation accuracy."""

    name = TASK
    best_metric = "accuracy"
    # A row with this target is left out of the loss.
    ignore_index = -100

    def __init__(self, *, label_smoothing: float) -> None:
        """Choose the loss; label smoothing as in Szegedy et al. 2016, section 7."""
        self.loss_function = nn.CrossEntropyLoss(ignore_index=self.ignore_index, label_smoothing=label_smoothing)

    @staticmethod
    def describe(model: ModelConfig, *, vocab_size: int, labels: list[str]) -> dict[str, Any]:
        """Build config.json from the run's configuration and what the data decided.

        Raises:
            ValueError: if the parts of the model do not fit each other.
        """
        encoder = EncoderConfig(
            vocab_size=vocab_size,
            max_len=model.max_len,
            dim=model.dim,
            num_layers=model.num_layers,
            num_heads=model.num_heads,
            hidden_dim=model.hidden_dim,
            attention=model.attention,
            position=model.position,
            norm=model.norm,
            activation=model.activation,
            causal=model.causal,
            dropout=model.dropout,
        )
        return describe_model(encoder, pooling=model.pooling, head=model.head, labels=labels)

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the mean cross-entropy in nats; logits (B, labels) float, targets (B,) int64."""
        loss: Tensor = self.loss_function(logits, targets)
        return loss

    @staticmethod
    def score(logits: npt.NDArray[np.float32], targets: npt.NDArray[np.int64]) -> dict[str, float]:
        """Return the metrics of a split; logits (N, labels) float, targets (N,) int64."""
        predictions = logits.argmax(axis=1)
        return {"accuracy": accuracy(predictions, targets), "macro_f1": macro_f1(predictions, targets)}
