"""The models of the tolerance study: drawn architectures, each with several kinds of weights.

Every value of every axis comes equally often, in combinations that a seed decides. An architecture is exported once;
the other weights are put into the exported graph under the parameters' names.
"""

import random
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import onnx
import torch
from onnx import numpy_helper
from torch import Tensor, nn

from export.capture import capture
from export.contract import PAD_ID, TEXT_CLASSIFICATION, TOKEN_CLASSIFICATION
from export.errors import FerryError
from export.files import dump_json
from export.model import CONFIG_FILE, TASKS, WEIGHTS_FILE, build_model, describe_model, model_limits, serialise_weights
from export.onnx_export import ONNX_FILE, export_onnx
from export.torchscript import TORCHSCRIPT_FILE, export_torchscript
from models.attention import ATTENTIONS
from models.block import NORMS
from models.config import EncoderConfig, legal_positions
from models.feed_forward import ACTIVATIONS
from models.heads import HEADS
from models.pooling import POOLINGS
from models.position import POSITIONS

Files = dict[str, bytes]

AXES: dict[str, list[int | str | bool]] = {
    "attention": list(ATTENTIONS),
    "position": list(POSITIONS),
    "norm": list(NORMS),
    "activation": list(ACTIVATIONS),
    "task": [TEXT_CLASSIFICATION, TOKEN_CLASSIFICATION],
    "pooling": list(POOLINGS),
    "head": list(HEADS),
    "labels": [2, 2, 3, 7, 57],
    "dim": [16, 32, 64, 128],
    "layers": [1, 2, 4, 6],
    "heads": [1, 2, 4, 8],
    "hidden": [2, 4],
    "causal": [False, False, True],
    "max_len": [19, 37, 64],
    "vocab_size": [50, 500],
}

TRAINING_STEPS = 40
_TRAINING_SHAPE = (32, 12)


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """One draw: the configuration of a model, and the seed of its weights."""

    seed: int
    config: dict[str, Any]

    @property
    def name(self) -> str:
        """What was drawn, in one line."""
        e = EncoderConfig.from_dict(self.config["encoder"])
        causal = "causal-" * e.causal
        return (
            f"{causal}{e.attention}-{e.position}-{e.norm}-{e.activation}-{self.config['pooling'] or 'tags'}-"
            f"{self.config['head']}-C{e.dim}-L{e.num_layers}-H{e.num_heads}-F{e.hidden_dim}-T{e.max_len}-"
            f"V{e.vocab_size}-labels{len(self.config['id2label'])}"
        )


def draw_architectures(count: int, *, seed: int = 0) -> list[Architecture]:
    """Draw architectures; each axis runs through its values in a shuffled order, so that none is left out."""
    rng = random.Random(seed)
    columns = {}
    for axis, values in AXES.items():
        column = [values[place % len(values)] for place in range(count)]
        rng.shuffle(column)
        columns[axis] = column
    return [
        Architecture(seed=seed + place, config=_describe({axis: column[place] for axis, column in columns.items()}))
        for place in range(count)
    ]


def _describe(drawn: dict[str, Any]) -> dict[str, Any]:
    """Build config.json; what a mechanism can't take is replaced by what it can."""
    attention, position, task, dim = (drawn[axis] for axis in ("attention", "position", "task", "dim"))
    legal = legal_positions(attention)
    encoder = EncoderConfig(
        vocab_size=drawn["vocab_size"],
        max_len=drawn["max_len"],
        dim=dim,
        num_layers=drawn["layers"],
        num_heads=drawn["heads"],
        hidden_dim=dim * drawn["hidden"],
        attention=attention,
        position=position if position in legal else legal[0],
        norm=drawn["norm"],
        activation=drawn["activation"],
        causal=drawn["causal"] and ATTENTIONS[attention].causal,
    )
    labels = [f"label {index}" for index in range(drawn["labels"])]
    pooling = None if TASKS[task].per_token else drawn["pooling"]
    return describe_model(task, encoder, pooling=pooling, head=drawn["head"], labels=labels)


def _fresh(model: nn.Module, _: Architecture, __: torch.Generator) -> None:
    """Leave the weights as they are before training."""


def _spread(model: nn.Module, _: Architecture, generator: torch.Generator) -> None:
    """Add noise, which makes large logits and leaves no bias at zero."""
    for parameter in model.parameters():
        parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))


def _large(model: nn.Module, _: Architecture, __: torch.Generator) -> None:
    """Double everything, which makes large activations and attention that is nearly a choice."""
    for parameter in model.parameters():
        parameter.mul_(2)


@torch.enable_grad()
def _trained(model: nn.Module, architecture: Architecture, generator: torch.Generator) -> None:
    """Train for some steps on a rule: a token's label is its id modulo the labels, a row's that of its first token."""
    config = architecture.config
    limits = model_limits(config)
    batch, length = _TRAINING_SHAPE[0], min(_TRAINING_SHAPE[1], limits.max_length)
    labels = len(config["id2label"])
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    model.train()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(architecture.seed)
        for _ in range(TRAINING_STEPS):
            ids = torch.randint(PAD_ID + 1, limits.vocab_size, (batch, length), generator=generator)
            mask = torch.ones_like(ids)
            mask[::2, length // 2 :] = 0
            logits = model(ids, mask)
            wanted = ids % labels if logits.ndim == 3 else ids[:, 0] % labels
            loss = nn.functional.cross_entropy(logits.flatten(0, -2), wanted.flatten())
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    model.eval()


# The first is what is exported: in fresh weights, parameters that are equal would become one constant of the graph.
WEIGHTS: dict[str, Callable[[nn.Module, Architecture, torch.Generator], None]] = {
    "spread": _spread,
    "fresh": _fresh,
    "large": _large,
    "trained": _trained,
}


def build_files(architecture: Architecture) -> Iterator[tuple[str, Files]]:
    """Yield a model's files with each kind of weights: the kind, and what `open_runtime` reads.

    Raises:
        FerryError: if the exported graph does not hold the weights under the parameters' names.
    """
    graph = b""
    for kind, change in WEIGHTS.items():
        generator = torch.Generator().manual_seed(architecture.seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(architecture.seed)
            model = build_model(architecture.config)
        with torch.no_grad():
            change(model, architecture, generator)
        model.eval().requires_grad_(False)
        if not graph:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the exporter's own; the tests of the exporter say which
                graph = export_onnx(capture(model, model_limits(architecture.config)), {})
        yield (
            kind,
            {
                CONFIG_FILE: dump_json(architecture.config).encode(),
                WEIGHTS_FILE: serialise_weights(model),
                TORCHSCRIPT_FILE: export_torchscript(model, {}),
                ONNX_FILE: replace_weights(graph, model.state_dict()),
            },
        )


def replace_weights(graph: bytes, weights: dict[str, Tensor]) -> bytes:
    """Put other weights into an ONNX file.

    Raises:
        FerryError: if the graph does not hold all of them under their names, in their shapes.
    """
    proto = onnx.load_from_string(graph)
    constants = {tensor.name: tensor for tensor in proto.graph.initializer}
    for name, weight in weights.items():
        if name not in constants or list(constants[name].dims) != list(weight.shape):
            raise FerryError(
                f"the exported graph does not hold {name} {tuple(weight.shape)}; export it for each weights."
            )
        constants[name].CopyFrom(numpy_helper.from_array(weight.numpy(), name))
    data: bytes = proto.SerializeToString(deterministic=True)
    return data
