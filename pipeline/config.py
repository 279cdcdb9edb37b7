"""The configuration of a run: one TOML file, checked once, all its errors told at once.

Does not import torch; whether the model's own parts fit each other is checked by `models.config.EncoderConfig`.
"""

import dataclasses
import math
import re
import tomllib
import types
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from export.contract import SPECIAL_TOKENS_PER_TEXT, TEXT_CLASSIFICATION, TOKEN_CLASSIFICATION
from pipeline.class_weights import CLASS_WEIGHTS
from pipeline.schedules import SCHEDULES

CONFIGS = Path(__file__).parent / "configs"
DEFAULT_CONFIG = CONFIGS / "default.toml"
# What own data is trained with unless a configuration is named, by task.
OWN_CONFIGS = {TEXT_CLASSIFICATION: CONFIGS / "text.toml", TOKEN_CLASSIFICATION: CONFIGS / "tags.toml"}

_LEGAL_IN_NAMES = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
_LONGEST_NAME = 100
# What a training step computes in; `pipeline.precision` says what that means.
PRECISIONS = ("float32", "bfloat16")
# File names that say which split they are and not what they hold.
_SPLIT_NAMES = ("train", "training", "data", "all", "dataset")


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """What is learned from: a built-in data set, or own files.

    Files and folders are CSV, TSV, JSON lines, Parquet or CoNLL; paths in a configuration file are relative to it.
    """

    # A built-in data set, or what own files are called.
    name: str = "licences"
    # Own files or folders; without any, the built-in set `name`.
    train: tuple[str, ...] = ()
    validation: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    # Column names; empty: guessed, and told.
    text: str = ""
    label: str = ""
    # Rows with this label fit no class: they choose the threshold of "none of these" and train nothing.
    none_label: str = ""
    # What is cut from the training rows if there is no file for it.
    validation_share: float = 0.1
    test_share: float = 0.1
    max_bad_share: float = 0.01
    licence: str = "not stated"
    attribution: str = "not stated"
    origin: str = "the user's own files"


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
    """How the weights are found; `batch_tokens` counts padded tokens, `threads` belongs to the result's identity.

    `precision` is what a step's matrix products are computed in: bfloat16 pays for wide models on processors with AMX.
    Of `checkpoint_steps`, the most steps that an interruption can cost, the weights do not depend.
    """

    seed: int = 0
    threads: int = 2
    device: str = "cpu"
    precision: str = "float32"
    epochs: int = 10
    patience: int = 3
    batch_tokens: int = 4096
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    schedule: str = "cosine"
    warmup_steps: int = 100
    label_smoothing: float = 0.1
    class_weights: str = "none"
    token_dropout: float = 0.0
    clip_norm: float = 1.0
    checkpoint_steps: int = 500


@dataclass(frozen=True, kw_only=True)
class CalibrationConfig:
    """`rejected_share` of the right validation answers may fall below the threshold; 0 turns it off.

    Where the data has texts that fit no class, they choose the threshold instead.
    """

    rejected_share: float = 0.01


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
    calibration: CalibrationConfig = CalibrationConfig()
    package: PackageConfig = PackageConfig()

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def identity(self) -> dict[str, Any]:
        """Return what the result depends on: all but how often the state is written and in which folders data lies."""
        identity = self.to_dict()
        del identity["training"]["checkpoint_steps"]
        for split in _FILE_FIELDS:
            identity["data"][split] = [Path(path).name for path in identity["data"][split]]
        return identity


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
    return dataclasses.replace(config, data=_relative_to(path.parent, config.data))


def _relative_to(folder: Path, data: DataConfig) -> DataConfig:
    """Read the paths of own files as relative to the configuration's folder."""
    paths: dict[str, Any] = {name: tuple(str(folder / path) for path in getattr(data, name)) for name in _FILE_FIELDS}
    return dataclasses.replace(data, **paths)


_FILE_FIELDS = ("train", "validation", "test")


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
        "training.checkpoint_steps": training.checkpoint_steps,
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
    if not 0 <= training.token_dropout < 1:
        problems.append(f"training.token_dropout must lie in [0, 1); got {training.token_dropout}.")
    if not 0 <= config.calibration.rejected_share < 1:
        problems.append(f"calibration.rejected_share must lie in [0, 1); got {config.calibration.rejected_share}.")
    if training.class_weights not in CLASS_WEIGHTS:
        problems.append(
            f"training.class_weights must be one of {', '.join(CLASS_WEIGHTS)}; got {training.class_weights!r}."
        )
    if training.schedule not in SCHEDULES:
        problems.append(f"training.schedule must be one of {', '.join(SCHEDULES)}; got {training.schedule!r}.")
    if training.precision not in PRECISIONS:
        problems.append(f"training.precision must be one of {', '.join(PRECISIONS)}; got {training.precision!r}.")
    if training.device not in ("cpu", "cuda"):
        problems.append(f"training.device must be cpu or cuda; got {training.device!r}.")
    if config.model.max_len <= SPECIAL_TOKENS_PER_TEXT:
        problems.append(
            f"model.max_len must be at least {SPECIAL_TOKENS_PER_TEXT + 1}, for a piece of the text stands between cls "
            f"and sep; got {config.model.max_len}."
        )
    if training.batch_tokens < config.model.max_len:
        problems.append(
            f"training.batch_tokens must hold one text of model.max_len = {config.model.max_len} tokens; "
            f"got {training.batch_tokens}."
        )
    return problems + data_problems(config.data) + artifact_name_problems(config.name, "name")


def data_problems(data: DataConfig) -> list[str]:
    """Say what is wrong with the configuration of the data; an empty list if nothing is."""
    problems = [
        f"data.{name} must lie in (0, 0.5]; got {share}."
        for name, share in (("validation_share", data.validation_share), ("test_share", data.test_share))
        if not 0 < share <= 0.5
    ]
    if data.validation_share == data.test_share == 0.5:
        problems.append("data.validation_share + data.test_share must be below 1; got 1.0, which leaves nothing.")
    if not 0 <= data.max_bad_share < 1:
        problems.append(f"data.max_bad_share must lie in [0, 1); got {data.max_bad_share}.")
    problems += [
        f"data.{name} must not be blank."
        for name in ("name", "licence", "attribution", "origin")
        if not getattr(data, name).strip()
    ]
    for name in _FILE_FIELDS:
        if not all(path and "\0" not in path for path in getattr(data, name)):
            problems.append(f"data.{name} must hold paths; got {list(getattr(data, name))}.")
    if not data.train:
        problems += [
            f"data.{name} is for own files, so it needs data.train."
            for name in ("validation", "test", "text", "label", "none_label")
            if getattr(data, name)
        ]
    return problems


def artifact_name_problems(name: str, what: str) -> list[str]:
    """Say what keeps a name from being a folder's name on every system; an empty list if nothing does."""
    if not name or len(name) > _LONGEST_NAME or name.startswith((".", "-")) or not set(name) <= set(_LEGAL_IN_NAMES):
        got = repr(name) if len(name) <= _LONGEST_NAME else f"{name[:20]!r} … of {len(name)} characters"
        return [
            f"{what} must be 1 to {_LONGEST_NAME} letters, digits, dots, hyphens or underscores (none of . - first); "
            f"got {got}."
        ]
    return []


def own_name(data: DataConfig) -> str:
    """Make an artifact's name of the first own file's or folder's; a file that is called as a split gives its folder's.

    What can't stand in a name becomes a hyphen; where nothing is left, the name is "own-data".
    """
    path = Path(data.train[0]).absolute()
    stem = path.name if path.is_dir() else path.name.partition(".")[0]
    if stem.lower() in _SPLIT_NAMES and path.parent.name:
        stem = path.parent.name
    name = re.sub(f"[^{re.escape(_LEGAL_IN_NAMES)}]+", "-", stem).strip(".-")[:_LONGEST_NAME]
    return name or "own-data"


def replace_checked(config: RunConfig, **changes: Any) -> RunConfig:
    """Replace parts of a configuration, under the rules of its file.

    Raises:
        ValueError: names every mistake.
    """
    changed = dataclasses.replace(config, **changes)
    problems = _rules(changed)
    if problems:
        raise ValueError("\n".join(problems))
    return changed
