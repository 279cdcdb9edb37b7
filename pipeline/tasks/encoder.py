"""The encoder that a run's configuration asks for; every task builds on one."""

from models.config import EncoderConfig
from pipeline.config import ModelConfig


def encoder_config(model: ModelConfig, *, vocab_size: int) -> EncoderConfig:
    """Build the encoder's configuration from the run's and what the data decided.

    Raises:
        ValueError: if the parts of the model do not fit each other.
    """
    return EncoderConfig(
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
