"""Faults of TorchScript's code beside the model's own: run by loading, run by a call too, waiting, never ending."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from export.torchscript import TORCHSCRIPT_FILE
from tests.sabotage.artifact import Contents
from tests.sabotage.faults.fault import Fault, Plant
from tests.sabotage.tools import edit_code, export_twin

_KIND = "code that runs beside forward"


def negate(self: nn.Module, inputs: tuple[Tensor, Tensor], output: Tensor) -> Tensor:
    """A hook: the answer turned round after the model gave it."""
    return -output


def open_mask(self: nn.Module, inputs: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """A hook: the mask lost before the model sees it."""
    return inputs[0], torch.ones_like(inputs[1])


class Restless(nn.Identity):
    """Has methods that run when it is stored and loaded."""

    @torch.jit.export
    def __getstate__(self) -> tuple[bool]:
        return (self.training,)

    @torch.jit.export
    def __setstate__(self, state: tuple[bool]) -> None:
        self.training = state[0]


class Talkative(nn.Identity):
    """Has a method that nothing calls."""

    @torch.jit.export
    def other(self, x: Tensor) -> Tensor:
        return x + 1


def add_hook(model: nn.Module) -> None:
    model.register_forward_hook(negate)


def add_pre_hook(model: nn.Module) -> None:
    model.register_forward_pre_hook(open_mask)


def add_states(model: nn.Module) -> None:
    """Put the restless one in the place of dropout, which does nothing either."""
    setattr(model.head, "0", Restless())


def add_method(model: nn.Module) -> None:
    setattr(model.head, "0", Talkative())


def _plant(change: Callable[[nn.Module], object]) -> Plant:
    return lambda contents: export_twin(contents, TORCHSCRIPT_FILE, change)


def _loop(contents: Contents) -> None:
    """Wait for ever, before the answer."""
    edit_code(
        contents,
        "models.heads",
        "    return logits",
        "    while True:\n      logits = torch.add(logits, 0)\n    return logits",
    )


FAULTS = (
    Fault(id="pt-loop", kind="never ends", plant=_loop, check="inference mode"),
    Fault(id="pt-hook", kind=_KIND, plant=_plant(add_hook), moves=True, check="nothing runs beside forward"),
    Fault(id="pt-pre-hook", kind=_KIND, plant=_plant(add_pre_hook), moves=True, check="nothing runs beside forward"),
    Fault(id="pt-setstate", kind=_KIND, plant=_plant(add_states), check="nothing runs beside forward"),
    Fault(id="pt-method-that-waits", kind=_KIND, plant=_plant(add_method), check="model.pt is a fresh export"),
)
