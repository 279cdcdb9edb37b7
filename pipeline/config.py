"""The configuration of a run: one TOML file, checked once, all its errors told at once.

Does not import torch; whether the model's own parts fit each other is checked by `models.config.EncoderConfig`.
"""

import dataclasses
import math
import tomllib
import types
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.schedules import SCHEDULES


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    name: str = "licences"


@dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    vocab_size: int = 4000


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The encoder and its head; what the data decides (vocabulary, labels) is not here."""

    max_len: int = 192
    dim: int = 128
    num_layers: int = 3
    num_heads: int = 4
    hidden_dim: int = 512
    attention: str = "sdpa"
    position: str = "learned"
    norm: str = "pre"
    activation: str = "gelu"
    causal: bool = False
    dropout: float = 0.1
    pooling: str = "mean_max"
    head: str = "linear"


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """How the weights are found; `batch_tokens` counts padded tokens, `threads` belongs to the result's identity."""

    seed: int = 0
    threads: int = 2
    device: str = "cpu"
    epochs: int = 10
    patience: int = 3
    batch_tokens: int = 4096
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    schedule: str = "cosine"
    warmup_steps: int = 100
    label_smoothing: float = 0.1
    clip_norm: float = 1.0


@dataclass(frozen=True, kw_only=True)
class PackageConfig:
    """`golden_texts` are packaged, so they must be texts that anyone may read."""

    golden_texts: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """A run's whole configuration; `name` becomes the artifact's name."""

    name: str
    data: DataConfig = DataConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    model: ModelConfig = ModelConfig()
    training: TrainingConfig = TrainingConfig()
    package: PackageConfig = PackageConfig()

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def load_config(path: Path) -> RunConfig:
    """Read a run's configuration.

    Raises:
        ValueError: names the file and every mistake in it.
    """
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ValueError(
            f"the configuration {path} does not exist. Start from pipeline/configs/default.toml."
        ) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ValueError(f"the configuration {path} can't be read: {error}.") from None
    problems: list[str] = []
    config = _build(RunConfig, document, "", problems)
    if not problems:
        problems = _rules(config)
    if problems:
        raise ValueError(
            f"the configuration {path} has mistakes:\n" + "\n".join(f"  {problem}" for problem in problems)
        )
    assert isinstance(config, RunConfig)
    return config


def _build(kind: Any, table: dict[str, Any], prefix: str, problems: list[str]) -> Any:
    fields = {field.name: field for field in dataclasses.fields(kind)}
    types_by_name = typing.get_type_hints(kind)
    values: dict[str, Any] = {}
    for key, value in table.items():
        where = f"{prefix}{key}"
        if key not in fields:
            problems.append(f"{where} is unknown; {prefix or 'the top level '}knows {', '.join(fields)}.")
        elif dataclasses.is_dataclass(types_by_name[key]):
            if isinstance(value, dict):
                values[key] = _build(types_by_name[key], value, f"{where}.", problems)
            else:
                problems.append(f"{where} must be a table; got {value!r}.")
        else:
            values[key] = _value(types_by_name[key], value, where, problems)
    missing = [name for name, field in fields.items() if field.default is dataclasses.MISSING and name not in table]
    problems.extend(f"{prefix}{name} is missing." for name in missing)
    return None if problems else kind(**values)


def _value(kind: Any, value: Any, where: str, problems: list[str]) -> Any:
    if isinstance(kind, types.GenericAlias):  # tuple[str, ...]
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
        problems.append(f"{where} must be a list of strings; got {value!r}.")
    elif kind is float and type(value) is int:
        return float(value)
    elif type(value) is not kind:
        problems.append(f"{where} must be of type {kind.__name__}; got {value!r}.")
    return value


def _rules(config: RunConfig) -> list[str]:
    training = config.training
    at_least_one = {
        "tokenizer.vocab_size": config.tokenizer.vocab_size,
        "training.threads": training.threads,
        "training.epochs": training.epochs,
        "training.patience": training.patience,
        "training.batch_tokens": training.batch_tokens,
    }
    problems = [f"{name} must be at least 1; got {value}." for name, value in at_least_one.items() if value < 1]
    problems += [
        f"{name} must be at most {most}; got {value}."
        for name, value, most in (
            ("training.seed", training.seed, 2**32 - 1),
            ("training.threads", training.threads, 1024),
        )
        if value > most
    ]
    positive = {"training.learning_rate": training.learning_rate, "training.clip_norm": training.clip_norm}
    problems += [
        f"{name} must be a finite number above 0; got {value}."
        for name, value in positive.items()
        if not 0 < value < math.inf
    ]
    not_negative = {
        "training.seed": training.seed,
        "training.warmup_steps": training.warmup_steps,
        "training.weight_decay": training.weight_decay,
    }
    problems += [
        f"{name} must be finite and at least 0; got {value}."
        for name, value in not_negative.items()
        if not 0 <= value < math.inf
    ]
    if not 0 <= training.label_smoothing < 1:
        problems.append(f"training.label_smoothing must lie in [0, 1); got {training.label_smoothing}.")
    if training.schedule not in SCHEDULES:
        problems.append(f"training.schedule must be one of {', '.join(SCHEDULES)}; got {training.schedule!r}.")
    if training.device not in ("cpu", "cuda"):
        problems.append(f"training.device must be cpu or cuda; got {training.device!r}.")
    if training.batch_tokens < config.model.max_len:
        problems.append(
            f"training.batch_tokens must hold one text of model.max_len = {config.model.max_len} tokens; "
            f"got {training.batch_tokens}."
        )
    return problems + artifact_name_problems(config.name, "name")


def artifact_name_problems(name: str, what: str) -> list[str]:
    """Say what keeps a name from being a folder's name on every system; an empty list if nothing does."""
    legal = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
    if not name or len(name) > 100 or name.startswith((".", "-")) or not set(name) <= set(legal):
        return [
            f"{what} must be 1 to 100 letters, digits, dots, hyphens or underscores (none of . - first); got {name!r}."
        ]
    return []
