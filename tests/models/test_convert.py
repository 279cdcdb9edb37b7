"""Fused and separate projections: a round trip keeps every bit, and both compute the same."""

import pytest
import torch
from torch import nn

from models.attention.sdpa import SDPAttention
from models.convert import fuse, fuse_qkv, separate, split_qkv
from models.multi_head_attention import MultiHeadAttention
from models.packing import pack, plan_packing, unpack
from models.position.none import NoPosition
from models.self_attention import SelfAttention


def layer(bias: bool) -> SelfAttention:
    torch.manual_seed(0)
    made = SelfAttention(12, 3, attend=SDPAttention(causal=True), position=NoPosition(), bias=bias)
    for parameter in made.parameters():
        nn.init.normal_(parameter)
    return made


@pytest.mark.parametrize("shape", [(4, 6), (4,)], ids=str)
def test_tensors_round_trip(shape: tuple[int, ...]) -> None:
    parts = [torch.randn(shape) for _ in range(3)]
    fused = fuse_qkv(*parts)
    assert fused.shape == (12, *shape[1:])
    for part, back in zip(parts, split_qkv(fused), strict=True):
        assert torch.equal(part, back)


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no_bias"])
def test_layers_round_trip_and_share_nothing(bias: bool) -> None:
    fused = layer(bias)
    back = fuse(separate(fused))
    assert back.state_dict().keys() == fused.state_dict().keys()
    for name, weight in fused.state_dict().items():
        assert torch.equal(back.state_dict()[name], weight)
        assert back.state_dict()[name].data_ptr() != weight.data_ptr()


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no_bias"])
def test_both_compute_the_same(bias: bool) -> None:
    fused = layer(bias)
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    packing = plan_packing(mask)
    x = torch.randn(2, 4, 12)
    packed = unpack(fused(pack(x, packing.source), packing, None), packing.home, mask != 0)
    rectangle = separate(fused)(x, x, x, mask.bool()) * mask[:, :, None]
    # The same products in one matmul or in three.
    torch.testing.assert_close(packed, rectangle, rtol=1e-5, atol=1e-5)


def test_different_widths_can_not_be_fused() -> None:
    with pytest.raises(ValueError, match="got queries 12, keys 8, values 12"):
        fuse(MultiHeadAttention(12, 3, key_dim=8))
