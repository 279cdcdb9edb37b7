"""The matrix: every mechanism × legal position × causal × {TorchScript, ONNX, .pt2}, away from the example's shape."""

import io
import itertools
from collections.abc import Callable
from functools import cache

import onnxruntime
import pytest
import torch
from torch import Tensor

from models.attention import ATTENTIONS
from models.config import EncoderConfig, legal_positions
from models.heads import TextClassifier, TokenTagger
from models.pooling import POOLINGS

# torch 2.13's exporter trips over a deprecation of its own, and says that two inputs share an axis, which is meant.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:# The axis name:UserWarning"),
]

EXAMPLE_SHAPE = (2, 7)
SHAPES = [(1, 1), (1, 5), (3, 1), (3, 37), (2, 48)]
LEVELS = ["ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_ALL"]
PAIRS = [
    (attention, position, causal)
    for attention, row in ATTENTIONS.items()
    for position in legal_positions(attention)
    for causal in ([False, True] if row.causal else [False])
]
# The poolings, and the tagger that pools nothing, take turns: each is exported with several mechanisms.
TOKENS = "tokens"
CASES = [(*pair, pooling) for pair, pooling in zip(PAIRS, itertools.cycle([*POOLINGS, TOKENS]), strict=False)]
every_case = pytest.mark.parametrize(
    "case", CASES, ids=[f"{a}-{p}-{'causal' if c else 'both_ways'}-{pooling}" for a, p, c, pooling in CASES]
)
every_shape = pytest.mark.parametrize("shape", SHAPES, ids=[f"B{batch}-T{length}" for batch, length in SHAPES])
# Two float32 runs of one function: 3e-7 to 8e-7 was seen over many shapes, and logits are of order 1.
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


@cache
def classifier(attention: str, position: str, causal: bool, pooling: str) -> TextClassifier | TokenTagger:
    torch.manual_seed(0)
    config = EncoderConfig(
        vocab_size=40,
        max_len=48,
        dim=16,
        num_layers=1,
        num_heads=2,
        hidden_dim=24,
        attention=attention,
        position=position,
        causal=causal,
    )
    # Both heads take their turn.
    head = "mlp" if causal else "linear"
    model = (
        TokenTagger(config, head=head, num_labels=4)
        if pooling == TOKENS
        else TextClassifier(config, pooling=pooling, head=head, num_labels=4)
    )
    model.eval().requires_grad_(False)
    for parameter in model.parameters():
        parameter.add_(0.1 * torch.randn_like(parameter))
    return model


@cache
def scripted(*case: str | bool) -> torch.jit.ScriptModule:
    buffer = io.BytesIO()
    torch.jit.save(torch.jit.script(classifier(*case)), buffer)  # type: ignore[arg-type]
    buffer.seek(0)
    return torch.jit.load(buffer)


@cache
def sessions(*case: str | bool) -> dict[str, onnxruntime.InferenceSession]:
    """One session for each level of optimisation."""
    axes = {0: torch.export.Dim("batch_size"), 1: torch.export.Dim("sequence_length", max=48)}
    program = torch.onnx.export(
        classifier(*case),  # type: ignore[arg-type]
        (torch.ones(EXAMPLE_SHAPE, dtype=torch.int64), torch.ones(EXAMPLE_SHAPE, dtype=torch.int64)),
        input_names=["input_ids", "attention_mask"],
        output_names=["logits"],
        dynamic_shapes={"input_ids": axes, "attention_mask": axes},
        opset_version=23,
        dynamo=True,
        verbose=False,
    )
    assert program is not None
    opened = {}
    for level in LEVELS:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
        options.intra_op_num_threads = 1
        opened[level] = onnxruntime.InferenceSession(
            program.model_proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    return opened


def masks(batch: int, length: int) -> dict[str, Tensor]:
    column, row = torch.arange(length)[None, :], torch.arange(batch)[:, None]
    right = column < length - row
    one_empty = torch.ones(batch, length).bool()
    one_empty[-1] = False
    patterns = {
        "ones": torch.ones(batch, length).bool(),
        "right": right,
        "left": right.flip(1),
        "holes": (column + row) % 3 != 1,
        "one_token": column == row % length,
        "one_empty_row": one_empty,
        "all_empty": torch.zeros(batch, length).bool(),
    }
    return {name: mask.long() for name, mask in patterns.items()}


Run = Callable[[Tensor, Tensor], Tensor]


def assert_same_function(model: TextClassifier | TokenTagger, run: Run, shape: tuple[int, int]) -> None:
    ids = torch.randint(0, 40, shape, generator=torch.Generator().manual_seed(1))
    for pattern, mask in masks(*shape).items():
        torch.testing.assert_close(
            run(ids, mask), model(ids, mask), **CLOSE, msg=lambda text, pattern=pattern: f"{pattern}: {text}"
        )


@every_case
@every_shape
def test_torchscript(case: tuple[str, str, bool, str], shape: tuple[int, int]) -> None:
    assert shape != EXAMPLE_SHAPE
    assert_same_function(classifier(*case), scripted(*case), shape)


@cache
def exported(*case: str | bool) -> torch.nn.Module:
    axes = {0: torch.export.Dim("batch_size"), 1: torch.export.Dim("sequence_length", max=48)}
    # Two tensors: torch.export takes one that is given twice for one input.
    example = (torch.ones(EXAMPLE_SHAPE, dtype=torch.int64), torch.ones(EXAMPLE_SHAPE, dtype=torch.int64))
    program = torch.export.export(classifier(*case), example, dynamic_shapes=(axes, axes))  # type: ignore[arg-type]
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    buffer.seek(0)
    return torch.export.load(buffer).module()


@every_case
@every_shape
def test_pt2(case: tuple[str, str, bool, str], shape: tuple[int, int]) -> None:
    assert shape != EXAMPLE_SHAPE
    assert_same_function(classifier(*case), exported(*case), shape)


@every_case
@every_shape
def test_onnx(case: tuple[str, str, bool, str], shape: tuple[int, int]) -> None:
    assert shape != EXAMPLE_SHAPE
    for session in sessions(*case).values():

        def run(ids: Tensor, mask: Tensor, session: onnxruntime.InferenceSession = session) -> Tensor:
            (logits,) = session.run(["logits"], {"input_ids": ids.numpy(), "attention_mask": mask.numpy()})
            return torch.from_numpy(logits)

        assert_same_function(classifier(*case), run, shape)
