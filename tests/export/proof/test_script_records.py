"""What runs beside `forward` in model.pt is refused, and two honest exports are one."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from export.proof.checks.files import Files
from export.proof.checks.script_records import check_code_beside_forward, check_script_records
from export.torchscript import TORCHSCRIPT_FILE, export_torchscript
from tests.export.proof.subjects import eager_model, metadata_of


def negate(self: nn.Module, inputs: tuple[Tensor, Tensor], output: Tensor) -> Tensor:
    return -output


def open_mask(self: nn.Module, inputs: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    return inputs[0], torch.ones_like(inputs[1])


class Restless(nn.Identity):
    """Has methods that run when it is stored and loaded, and one that nothing calls."""

    @torch.jit.export
    def __getstate__(self) -> tuple[bool]:
        return (self.training,)

    @torch.jit.export
    def __setstate__(self, state: tuple[bool]) -> None:
        self.training = state[0]


class Talkative(nn.Identity):
    @torch.jit.export
    def other(self, x: Tensor) -> Tensor:
        return x + 1


def plant(files: dict[str, bytes], change: Callable[[nn.Module], object]) -> Files:
    model = eager_model(files)
    change(model)
    script = export_torchscript(model.eval(), metadata_of(files))
    return Files({**files, TORCHSCRIPT_FILE: script}.__getitem__)


def test_another_honest_export_is_the_same_record_by_record(good: dict[str, bytes]) -> None:
    files = plant(good, lambda _: None)
    assert check_code_beside_forward(files) == []
    assert check_script_records(files) == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda model: model.register_forward_hook(negate), "__forward_hooks__"),
        (lambda model: model.register_forward_pre_hook(open_mask), "__forward_pre_hooks__"),
        (lambda model: setattr(model.head, "0", Restless()), "__setstate__"),
    ],
    ids=["hook", "pre-hook", "setstate"],
)
def test_code_that_runs_by_itself_is_refused(
    good: dict[str, bytes], change: Callable[[nn.Module], object], told: str
) -> None:
    files = plant(good, change)
    assert f"{TORCHSCRIPT_FILE} has code that runs beside forward: {told}" in check_code_beside_forward(files)
    assert check_script_records(files) != []


def test_a_method_that_nothing_calls_is_refused(good: dict[str, bytes]) -> None:
    files = plant(good, lambda model: setattr(model.head, "0", Talkative()))
    assert any("is not that of a fresh export" in problem for problem in check_script_records(files))
