"""EncoderConfig: everything that defines an encoder, checked once, all errors at once."""

import math
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any

from models.attention import ATTENTIONS
from models.block import NORMS
from models.feed_forward import ACTIVATIONS
from models.position import POSITIONS


def legal_positions(attention: str) -> list[str]:
    """The positions that a mechanism can make use of."""
    return [name for name, row in POSITIONS.items() if row.verb != "bias" or ATTENTIONS[attention].bias]


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """An encoder in words and numbers.

    Raises:
        ValueError: if anything is impossible; the message names every fault.
    """

    vocab_size: int
    max_len: int
    dim: int = 512
    num_layers: int = 6
    num_heads: int = 8
    hidden_dim: int = 2048
    attention: str = "sdpa"
    position: str = "sinusoidal"
    norm: str = "pre"
    activation: str = "gelu"
    causal: bool = False
    dropout: float = 0.1

    def __post_init__(self) -> None:
        errors = [*_check_numbers(self), *_check_names(self)]
        if errors:
            raise ValueError("\n".join(errors))

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; the inverse of `from_dict`."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "EncoderConfig":
        """Build the config again.

        Raises:
            ValueError: if a key is unknown or missing, or a value is impossible; names every fault.
        """
        known = {field.name for field in fields(cls)}
        required = {field.name for field in fields(cls) if field.default is MISSING}
        errors = [
            *(
                f"{key} is not an encoder setting; the settings are {', '.join(sorted(known))}."
                for key in values.keys() - known
            ),
            *(f"{key} is missing; it has no default." for key in required - values.keys()),
        ]
        if errors:
            raise ValueError("\n".join(sorted(errors)))
        return cls(**values)


def _check_numbers(config: EncoderConfig) -> list[str]:
    errors = []
    for name in ("vocab_size", "max_len", "dim", "num_layers", "num_heads", "hidden_dim"):
        value = getattr(config, name)
        # LayerNorm over a single number leaves nothing of it.
        least = 2 if name == "dim" else 1
        if type(value) is not int or value < least:
            errors.append(f"{name} must be a whole number, at least {least}; got {value!r}.")
    if not errors and config.dim % config.num_heads != 0:
        errors.append(
            f"width {config.dim} not divisible by {config.num_heads} heads; "
            f"set dim to {math.ceil(config.dim / config.num_heads) * config.num_heads}, or change num_heads."
        )
    if type(config.dropout) not in (int, float) or not 0 <= config.dropout < 1:
        errors.append(f"dropout must be a number, at least 0 and below 1; got {config.dropout!r}.")
    if type(config.causal) is not bool:
        errors.append(f"causal must be true or false; got {config.causal!r}.")
    return errors


def _check_names(config: EncoderConfig) -> list[str]:
    errors = []
    tables: dict[str, dict[str, Any]] = {
        "attention": ATTENTIONS,
        "position": POSITIONS,
        "norm": NORMS,
        "activation": ACTIVATIONS,
    }
    for name, table in tables.items():
        value = getattr(config, name)
        if value not in table:
            errors.append(f"{name} {value!r} is unknown; choose one of {', '.join(table)}.")
    if errors:
        return errors
    legal = legal_positions(config.attention)
    if config.position not in legal:
        errors.append(
            f"attention {config.attention!r} can't use position {config.position!r}; choose one of {', '.join(legal)}."
        )
    if config.causal and not ATTENTIONS[config.attention].causal:
        legal = [name for name, row in ATTENTIONS.items() if row.causal]
        errors.append(f"attention {config.attention!r} can't be causal; choose one of {', '.join(legal)}.")
    return errors
