"""Which module with weights is computed after which: the order that every exported graph must have too."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

EMBEDDING, LINEAR, NORM = "embedding", "linear", "layer norm"
# What exported graphs hold one operator of; a module of another kind takes its weights as it likes.
KINDS: dict[type[nn.Module], str] = {nn.Embedding: EMBEDDING, nn.Linear: LINEAR, nn.LayerNorm: NORM}


@dataclass(frozen=True)
class Use:
    """One use of a module with weights: its dotted name, its kind, and its parameters' names, the weight first."""

    path: str
    kind: str
    parameters: tuple[str, ...]


def parameter_uses(model: nn.Module) -> list[Use]:
    """Run a model on one token and return its modules with weights in the order in which they were used."""
    uses: list[Use] = []

    def note(path: str, module: nn.Module) -> Callable[..., None]:
        names = tuple(f"{path}.{name}" for name, _ in module.named_parameters())
        return lambda *_: uses.append(Use(path, KINDS[type(module)], names))

    hooks: list[Any] = [
        module.register_forward_pre_hook(note(path, module))
        for path, module in model.named_modules()
        if type(module) in KINDS
    ]
    try:
        with torch.inference_mode():
            model(torch.zeros(1, 1, dtype=torch.int64), torch.ones(1, 1, dtype=torch.int64))
    finally:
        for hook in hooks:
            hook.remove()
    return uses
