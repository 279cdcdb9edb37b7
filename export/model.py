"""The trained model as it lies on disk: config.json and model.safetensors, in and out, without pickle."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from export.contract import Limits, canonical_json
from export.files import sha256_bytes
from models.config import EncoderConfig
from models.heads import TextClassifier

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
TASK = "text-classification"
ARCHITECTURE = "TextClassifier"


def describe_model(encoder: EncoderConfig, *, pooling: str, head: str, labels: list[str]) -> dict[str, Any]:
    """Build config.json: everything that is needed to build the model again, in the names Hugging Face tools expect."""
    return {
        "model_type": "ferry",
        "architectures": [ARCHITECTURE],
        "task": TASK,
        "problem_type": "single_label_classification",
        "pooling": pooling,
        "head": head,
        "encoder": encoder.to_dict(),
        "id2label": {str(index): label for index, label in enumerate(labels)},
        "label2id": {label: index for index, label in enumerate(labels)},
    }


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


def build_model(config: dict[str, Any]) -> TextClassifier:
    """Build the model that config.json describes, with fresh weights.

    Raises:
        ValueError: if config.json describes no model of ours.
    """
    try:
        if config["architectures"] != [ARCHITECTURE]:
            raise ValueError(f"{CONFIG_FILE} must describe a {ARCHITECTURE}; got {config['architectures']}.")
        encoder = EncoderConfig.from_dict(config["encoder"])
        return TextClassifier(
            encoder, pooling=config["pooling"], head=config["head"], num_labels=len(model_labels(config))
        )
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


def restore_model(config: dict[str, Any], weights: bytes) -> TextClassifier:
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


def load_model(folder: Path) -> TextClassifier:
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
