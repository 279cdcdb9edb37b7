"""Blocks against torch.nn.TransformerEncoderLayer with copied weights, biases and masks."""

import pytest
import torch
from torch import Tensor, nn

from models.convert import block_from_torch
from models.packing import pack, plan_packing, unpack

MASKS = {
    "B3-T6-ones": [[1] * 6] * 3,
    "B3-T6-right": [[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0], [1, 0, 0, 0, 0, 0]],
    "B2-T5-left": [[0, 0, 1, 1, 1], [0, 0, 0, 0, 1]],
    "B2-T6-holes": [[1, 0, 1, 0, 1, 1], [0, 1, 0, 0, 1, 0]],
    "B1-T1-ones": [[1]],
}


def torch_layer(**options: object) -> nn.TransformerEncoderLayer:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(24, 4, 48, batch_first=True, **options)
    for parameter in layer.parameters():
        if parameter.dim() == 1:
            nn.init.normal_(parameter)
    return layer.eval()


def run(block: nn.Module, x: Tensor, mask: Tensor) -> Tensor:
    packing = plan_packing(mask)
    return unpack(block(pack(x, packing.source), packing, None), packing.home, mask != 0)


@pytest.mark.parametrize("norm_first", [True, False], ids=["pre", "post"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("causal", [False, True], ids=["both_ways", "causal"])
@pytest.mark.parametrize("rows", MASKS.values(), ids=MASKS.keys())
def test_equal_to_torch(norm_first: bool, activation: str, causal: bool, rows: list[list[int]]) -> None:
    theirs = torch_layer(norm_first=norm_first, activation=activation, layer_norm_eps=1e-3)
    mask = torch.tensor(rows)
    B, T = mask.shape
    x = torch.randn(B, T, 24)
    later = torch.ones(T, T).triu(1).bool() if causal else None
    # Gradients switched on keep PyTorch off its inference path, which warns that nested tensors are a prototype.
    expected = theirs(x, src_mask=later, src_key_padding_mask=mask == 0) * mask[:, :, None]
    actual = run(block_from_torch(theirs, causal=causal), x, mask)
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


def test_an_empty_batch_of_tokens_passes_through() -> None:
    block = block_from_torch(torch_layer())
    assert run(block, torch.randn(2, 3, 24), torch.zeros(2, 3, dtype=torch.int64)).eq(0).all()


def test_dropout_falls_on_what_is_added() -> None:
    block = block_from_torch(torch_layer(dropout=0.5, norm_first=True)).train()
    x, mask = torch.randn(2, 5, 24), torch.ones(2, 5, dtype=torch.int64)
    first, second = run(block, x, mask), run(block, x, mask)
    assert not torch.equal(first, second)
    block.dropout.p = 0.0
    assert torch.equal(run(block, x, mask), run(block.eval(), x, mask))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bias": False}, "bias=False has no counterpart"),
        ({"activation": torch.tanh}, "has no counterpart; use one of"),
    ],
)
def test_layers_of_torch_without_a_counterpart_are_refused(options: dict[str, object], message: str) -> None:
    theirs = nn.TransformerEncoderLayer(8, 2, 8, batch_first=True, **options)
    with pytest.raises(ValueError, match=message):
        block_from_torch(theirs)
