"""Heads: from an encoder's tokens to a task's answer; HEADS are the ways from a pooled vector to logits.

Cost: the pooling's, and O(C·labels) for each row or token that is answered, for `mlp` O(C²) more.
Does not support more than one label for a row or token: the answer is one logit a class.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from models.config import EncoderConfig
from models.encoder import Encoder, init_linear
from models.feed_forward import ACTIVATIONS
from models.packing import lay_out, pack, plan_packing, unpack
from models.pooling import POOLINGS


def linear_head(config: EncoderConfig, width: int, num_labels: int) -> nn.Module:
    """W drop(pooled) + b. Source: "BERT", section 4.1 and its reference code."""
    return nn.Sequential(nn.Dropout(config.dropout), nn.Linear(width, num_labels))


def mlp_head(config: EncoderConfig, width: int, num_labels: int) -> nn.Module:
    """W₂ drop(f(W₁ drop(pooled) + b₁)) + b₂, f the encoder's activation.

    Source: the classification head of RoBERTa's reference code, there with tanh for f.
    """
    return nn.Sequential(
        nn.Dropout(config.dropout),
        nn.Linear(width, config.dim),
        ACTIVATIONS[config.activation].build(),
        nn.Dropout(config.dropout),
        nn.Linear(config.dim, num_labels),
    )


@dataclass(frozen=True, kw_only=True)
class HeadRow:
    """What a head is; `build` takes the config, the pooled width and the number of labels."""

    build: Callable[[EncoderConfig, int, int], nn.Module]
    summary: str


HEADS: dict[str, HeadRow] = {
    "linear": HeadRow(build=linear_head, summary="one layer; learns fastest from scratch"),
    "mlp": HeadRow(build=mlp_head, summary="two layers with the encoder's activation between"),
}


class TextClassifier(nn.Module):
    """Encoder, pooling and head: one logit a label for each row."""

    def __init__(self, config: EncoderConfig, *, pooling: str, num_labels: int, head: str = "linear") -> None:
        """Build encoder, pooling and head.

        Raises:
            ValueError: if the pooling or head is unknown or there are fewer than two labels; names every fault.
        """
        super().__init__()
        errors = _head_errors(head, num_labels)
        if pooling not in POOLINGS:
            errors.append(f"pooling {pooling!r} is unknown; choose one of {', '.join(POOLINGS)}.")
        if errors:
            raise ValueError("\n".join(errors))
        self.encoder = Encoder(config)
        self.pool = POOLINGS[pooling].build()
        self.head = HEADS[head].build(config, POOLINGS[pooling].widths * config.dim, num_labels)
        self.head.apply(init_linear)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Score each class for each row.

        Args:
            input_ids: (B, T) int64, 1 ≤ T ≤ max_len, each 0 … vocab_size − 1.
            attention_mask: (B, T) int64, 1 at a token and 0 at padding, in any pattern.

        Returns:
            (B, num_labels) float logits; the head applied to zeros for a row without tokens.

        Raises:
            ValueError: if attention_mask is not two-dimensional.
        """
        packing = plan_packing(attention_mask)
        x = self.encoder.encode(pack(input_ids, packing.source), packing)  # (N, C)
        logits: Tensor = self.head(self.pool(lay_out(x, packing.aligned), packing.keep))  # (B, num_labels)
        return logits


class TokenTagger(nn.Module):
    """Encoder and head: one logit a label for each token."""

    def __init__(self, config: EncoderConfig, *, num_labels: int, head: str = "linear") -> None:
        """Build encoder and head.

        Raises:
            ValueError: if the head is unknown or there are fewer than two labels; names every fault.
        """
        super().__init__()
        errors = _head_errors(head, num_labels)
        if errors:
            raise ValueError("\n".join(errors))
        self.encoder = Encoder(config)
        self.head = HEADS[head].build(config, config.dim, num_labels)
        self.head.apply(init_linear)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Score each class for each token.

        Args:
            input_ids: (B, T) int64, 1 ≤ T ≤ max_len, each 0 … vocab_size − 1.
            attention_mask: (B, T) int64, 1 at a token and 0 at padding, in any pattern.

        Returns:
            (B, T, num_labels) float logits, where the tokens stood; zeros at padding.

        Raises:
            ValueError: if attention_mask is not two-dimensional.
        """
        packing = plan_packing(attention_mask)
        logits: Tensor = self.head(self.encoder.encode(pack(input_ids, packing.source), packing))  # (N, num_labels)
        return unpack(logits, packing.home, attention_mask != 0)  # (B, T, num_labels)


def _head_errors(head: str, num_labels: int) -> list[str]:
    errors = []
    if head not in HEADS:
        errors.append(f"head {head!r} is unknown; choose one of {', '.join(HEADS)}.")
    if type(num_labels) is not int or num_labels < 2:
        errors.append(f"num_labels must be a whole number, at least 2; got {num_labels!r}.")
    return errors
