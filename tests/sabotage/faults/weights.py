"""Faults of the weights: the genuine graph in every format, with other numbers in it."""

from collections.abc import Callable
from functools import partial

import torch
from onnx import numpy_helper
from torch import nn

from export.onnx_export import ONNX_FILE
from tests.sabotage.artifact import Contents
from tests.sabotage.faults.fault import CLASSIFIER, DEEP, Fault
from tests.sabotage.tools import SHORT, edit_onnx, export_twin, formats, honest_model, initializer

Change = Callable[[nn.Module], object]
UP = "encoder.blocks.0.feed_forward.up"
OTHER_UP = "encoder.blocks.1.feed_forward.up"
QKV = "encoder.blocks.0.attention.qkv.weight"


def _scaled(model: nn.Module) -> None:
    model.get_parameter(f"{UP}.weight").mul_(1.01)


def _one_weight(model: nn.Module) -> None:
    model.get_parameter(f"{UP}.weight")[3, 2] += 0.5


def _one_bit(model: nn.Module) -> None:
    bits = model.get_parameter(f"{UP}.weight").view(torch.int32)
    bits[0, 0] ^= 1


def _minus_zero(model: nn.Module) -> None:
    model.get_parameter(f"{UP}.bias")[0] = -0.0


def _flushed(model: nn.Module) -> None:
    model.get_parameter(f"{UP}.bias")[1] = 0.0


def _nan(model: nn.Module) -> None:
    # Of the rarest input: the embedding of one id.
    model.get_parameter("encoder.embedding.weight")[287, 0] = float("nan")


def _infinite(model: nn.Module) -> None:
    model.get_parameter(f"{UP}.bias")[0] = float("inf")


def _other_run(model: nn.Module) -> None:
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        parameter += 0.1 * torch.randn(parameter.shape, generator=generator)


def _bias_dropped(model: nn.Module) -> None:
    model.get_parameter(f"{UP}.bias").zero_()


def _layers_exchanged(model: nn.Module) -> None:
    one, two = model.get_parameter(f"{UP}.weight"), model.get_parameter(f"{OTHER_UP}.weight")
    kept = one.clone()
    one.copy_(two)
    two.copy_(kept)


def _query_for_key(model: nn.Module) -> None:
    query, key, _ = model.get_parameter(QKV).chunk(3)
    kept = query.clone()
    query.copy_(key)
    key.copy_(kept)


def _heads_exchanged(model: nn.Module) -> None:
    """Exchange the values of the two heads, and not the columns that read them."""
    value = model.get_parameter(QKV).chunk(3)[2]
    value.copy_(value.roll(8, 0))


def _labels_exchanged(model: nn.Module) -> None:
    """Exchange two rows of the last layer: two labels change places inside the model."""
    for name in ("head.4.weight", "head.4.bias"):
        parameter = model.get_parameter(name)
        parameter[[0, 1]] = parameter[[1, 0]]


def _ids_exchanged(model: nn.Module) -> None:
    embedding = model.get_parameter("encoder.embedding.weight")
    embedding[[280, 281]] = embedding[[281, 280]]


def _transposed(model: nn.Module) -> None:
    """Store a square matrix the wrong way round."""
    parameter = model.get_parameter("encoder.blocks.0.attention.out.weight")
    parameter.copy_(parameter.t().clone())


def _rounded(dtype: torch.dtype) -> Change:
    def change(model: nn.Module) -> None:
        for parameter in model.parameters():
            parameter.copy_(parameter.to(dtype).float())

    return change


def _eight_bits(model: nn.Module) -> None:
    for parameter in model.parameters():
        scale = parameter.abs().max() / 127
        parameter.copy_(torch.round(parameter / scale) * scale)


# Each: its name, the kind it stands for, what is changed, and whether the function moves beyond the budget.
WEIGHTS: tuple[tuple[str, str, Change, bool], ...] = (
    ("weight-x1.01", "one weight changed", _scaled, True),
    ("one-weight", "one weight changed", _one_weight, True),
    ("one-bit", "one weight changed", _one_bit, False),
    ("minus-zero", "one weight changed", _minus_zero, False),
    ("subnormal-flushed", "one weight changed", _flushed, False),
    ("nan-weight", "NaN in a weight", _nan, True),
    ("infinite-weight", "NaN in a weight", _infinite, True),
    ("another-run", "another run's weights", _other_run, True),
    ("bias-dropped", "weights exchanged", _bias_dropped, True),
    ("layers-exchanged", "weights exchanged", _layers_exchanged, True),
    ("query-for-key-weights", "attention computed otherwise", _query_for_key, True),
    ("head-weights-exchanged", "attention computed otherwise", _heads_exchanged, True),
    ("labels-exchanged-inside", "two labels swapped", _labels_exchanged, True),
    ("embeddings-exchanged", "weights exchanged", _ids_exchanged, True),
    ("matrix-transposed", "weights exchanged", _transposed, True),
    ("half-as-float", "half stored as float", _rounded(torch.float16), True),
    ("bfloat16-as-float", "half stored as float", _rounded(torch.bfloat16), True),
    ("int8-as-float", "half stored as float", _eight_bits, True),
)


def replace_weights(contents: Contents, file: str, change: Change) -> None:
    """Put changed weights into a model file; an ONNX graph keeps its nodes."""
    if file != ONNX_FILE:
        export_twin(contents, file, change)
        return
    model = honest_model(contents)
    change(model)

    def edit(proto: object) -> None:
        for name, parameter in model.named_parameters():
            initializer(proto, name).CopyFrom(numpy_helper.from_array(parameter.numpy(), name))

    edit_onnx(contents, edit)


EVERYWHERE = frozenset({"one-weight", "one-bit", "another-run", "half-as-float"})
FAULTS = tuple(
    Fault(
        id=f"{SHORT[file]}-{name}",
        kind=kind,
        plant=partial(replace_weights, file=file, change=change),
        moves=moves,
        check="weights",
        base=DEEP if name == "layers-exchanged" else CLASSIFIER,
    )
    for place, (name, kind, change, moves) in enumerate(WEIGHTS)
    for file in formats(place, everywhere=name in EVERYWHERE)
)
