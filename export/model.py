"""The trained model as it lies on disk: config.json and model.safetensors, in and out, without pickle.

TASKS holds a row for each task that a model may be built for.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from export.contract import TEXT_CLASSIFICATION, TOKEN_CLASSIFICATION, Limits, build_metadata, canonical_json
from export.files import sha256_bytes
from models.config import EncoderConfig
from models.heads import TextClassifier, TokenTagger

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"


@dataclass(frozen=True, kw_only=True)
class TaskRow:
    """What a task asks of a model; `build` takes config.json, the encoder's configuration and the number of labels."""

    architecture: str
    build: Callable[[dict[str, Any], EncoderConfig, int], nn.Module]
    per_token: bool
    activation: str


def _build_classifier(config: dict[str, Any], encoder: EncoderConfig, num_labels: int) -> nn.Module:
    return TextClassifier(encoder, pooling=config["pooling"], head=config["head"], num_labels=num_labels)


def _build_tagger(config: dict[str, Any], encoder: EncoderConfig, num_labels: int) -> nn.Module:
    return TokenTagger(encoder, head=config["head"], num_labels=num_labels)


TASKS: dict[str, TaskRow] = {
    TEXT_CLASSIFICATION: TaskRow(
        architecture="TextClassifier", build=_build_classifier, per_token=False, activation="softmax"
    ),
    TOKEN_CLASSIFICATION: TaskRow(
        architecture="TokenTagger", build=_build_tagger, per_token=True, activation="softmax"
    ),
}


def describe_model(
    task: str,
    encoder: EncoderConfig,
    *,
    pooling: str | None,
    head: str,
    labels: list[str],
    temperature: float = 1.0,
    threshold: float = 0.0,
) -> dict[str, Any]:
    """Build config.json: everything that is needed to build the model again, in the names Hugging Face tools expect.

    `pooling` is None for a task that pools nothing; the other arguments are as for `build_metadata`.
    """
    return {
        "model_type": "ferry",
        "architectures": [TASKS[task].architecture],
        "task": task,
        "problem_type": "single_label_classification",
        "pooling": pooling,
        "head": head,
        "encoder": encoder.to_dict(),
        "id2label": {str(index): label for index, label in enumerate(labels)},
        "label2id": {label: index for index, label in enumerate(labels)},
        "temperature": temperature,
        "threshold": threshold,
    }


def model_task(config: dict[str, Any]) -> TaskRow:
    """Return the task's row.

    Raises:
        ValueError: if there is no such task.
    """
    if config["task"] not in TASKS:
        raise ValueError(f"{CONFIG_FILE} must name a task of {', '.join(TASKS)}; got {config['task']!r}.")
    return TASKS[config["task"]]


def model_metadata(
    config: dict[str, Any],
    *,
    profile: str,
    tokenizer_sha256: str,
    weights_sha256: str,
    versions: dict[str, str],
    minimum_runtime: dict[str, str],
) -> dict[str, Any]:
    """Build the metadata that the model files of a configuration carry."""
    task = model_task(config)
    return build_metadata(
        task=config["task"],
        per_token=task.per_token,
        labels=model_labels(config),
        activation=task.activation,
        temperature=config["temperature"],
        threshold=config["threshold"],
        pooling=config["pooling"],
        limits=model_limits(config),
        profile=profile,
        tokenizer_sha256=tokenizer_sha256,
        config_sha256=config_hash(config),
        weights_sha256=weights_sha256,
        versions=versions,
        minimum_runtime=minimum_runtime,
    )


def model_labels(config: dict[str, Any]) -> list[str]:
    """Return the labels of config.json in the order of the logits.

    Raises:
        ValueError: if `id2label` does not number its labels 0, 1, 2, ….
    """
    id2label = config["id2label"]
    try:
        return [id2label[str(index)] for index in range(len(id2label))]
    except KeyError as missing:
        raise ValueError(f"id2label must number its labels from 0 without a gap; {missing} is missing.") from None


def model_limits(config: dict[str, Any]) -> Limits:
    encoder = config["encoder"]
    return Limits(max_length=encoder["max_len"], vocab_size=encoder["vocab_size"])


def config_hash(config: dict[str, Any]) -> str:
    return sha256_bytes(canonical_json(config).encode())


def build_model(config: dict[str, Any]) -> nn.Module:
    """Build the model that config.json describes, with fresh weights.

    Raises:
        ValueError: if config.json describes no model of ours.
    """
    try:
        task = model_task(config)
        if config["architectures"] != [task.architecture]:
            raise ValueError(f"{CONFIG_FILE} must describe a {task.architecture}; got {config['architectures']}.")
        return task.build(config, EncoderConfig.from_dict(config["encoder"]), len(model_labels(config)))
    except (KeyError, TypeError) as error:
        raise ValueError(f"{CONFIG_FILE} must hold the keys that training wrote; got {error!r}. Train again.") from None


def serialise_weights(model: torch.nn.Module) -> bytes:
    return save({name: tensor.detach().contiguous().cpu() for name, tensor in model.state_dict().items()})


def read_weights(data: bytes) -> dict[str, Tensor]:
    """Read a safetensors file.

    Raises:
        ValueError: if the bytes are damaged.
    """
    try:
        return load(data)
    except SafetensorError as error:
        raise ValueError(f"{WEIGHTS_FILE} is damaged: {error}.") from None


def restore_model(config: dict[str, Any], weights: bytes) -> nn.Module:
    """Build the model with its trained weights, in eval mode, no gradients.

    Raises:
        ValueError: if the weights are damaged or belong to another model.
    """
    model = build_model(config)
    try:
        model.load_state_dict(read_weights(weights))
    except RuntimeError as error:
        raise ValueError(f"{WEIGHTS_FILE} does not fit {CONFIG_FILE}: {error}") from None
    return model.eval().requires_grad_(False)


def load_model(folder: Path) -> nn.Module:
    """Load the model from a folder that holds config.json and model.safetensors.

    Raises:
        ValueError: if a file is missing, damaged, or does not fit the other.
    """
    try:
        config = json.loads((folder / CONFIG_FILE).read_text("utf-8"))
        weights = (folder / WEIGHTS_FILE).read_bytes()
    except (FileNotFoundError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{folder} does not hold a trained model: {error}. Run `make train`.") from None
    return restore_model(config, weights)
