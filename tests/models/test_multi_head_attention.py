"""MultiHeadAttention against torch.nn.MultiheadAttention with copied weights and biases."""

import pytest
import torch
from torch import nn

from models.attention.full import FullAttention
from models.attention.sdpa import SDPAttention
from models.convert import multi_head_from_torch
from models.multi_head_attention import MultiHeadAttention

MECHANISMS = pytest.mark.parametrize("mechanism", [FullAttention, SDPAttention])
# M5: two float32 implementations of one function.
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def torch_layer(dim: int = 24, num_heads: int = 4, **options: object) -> nn.MultiheadAttention:
    layer = nn.MultiheadAttention(dim, num_heads, batch_first=True, **options).eval()
    for parameter in layer.parameters():
        # PyTorch starts biases at zero, where a forgotten bias would not show.
        if parameter.dim() == 1:
            nn.init.normal_(parameter)
    return layer


def source(length: int, dim: int = 24) -> torch.Tensor:
    return torch.randn(3, length, dim)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@MECHANISMS
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no_bias"])
@pytest.mark.parametrize("num_heads", [1, 4])
def test_equal_to_torch_on_one_source(mechanism: type[nn.Module], bias: bool, num_heads: int) -> None:
    theirs = torch_layer(num_heads=num_heads, bias=bias)
    ours = multi_head_from_torch(theirs, attend=mechanism())
    x = source(7)
    torch.testing.assert_close(ours(x, x, x), theirs(x, x, x)[0], **CLOSE)


@MECHANISMS
@pytest.mark.parametrize("widths", [(24, 24), (10, 24), (10, 36)], ids=str)
def test_equal_to_torch_on_three_sources(mechanism: type[nn.Module], widths: tuple[int, int]) -> None:
    theirs = torch_layer(kdim=widths[0], vdim=widths[1])
    ours = multi_head_from_torch(theirs, attend=mechanism())
    q, k, v = source(5), source(9, widths[0]), source(9, widths[1])
    keep = torch.rand(3, 9) < 0.6
    keep[:, 4] = True
    torch.testing.assert_close(ours(q, k, v), theirs(q, k, v)[0], **CLOSE)
    torch.testing.assert_close(ours(q, k, v, keep), theirs(q, k, v, key_padding_mask=~keep)[0], **CLOSE)


@MECHANISMS
def test_equal_to_torch_under_a_padding_mask(mechanism: type[nn.Module]) -> None:
    theirs = torch_layer()
    x = source(6)
    keep = torch.tensor([[1, 1, 1, 0, 0, 0], [0, 0, 1, 1, 1, 1], [1, 0, 0, 1, 0, 1]]).bool()
    ours = multi_head_from_torch(theirs, attend=mechanism())
    torch.testing.assert_close(ours(x, x, x, keep), theirs(x, x, x, key_padding_mask=~keep)[0], **CLOSE)


@MECHANISMS
@pytest.mark.parametrize("padded", [False, True])
def test_equal_to_torch_when_causal(mechanism: type[nn.Module], padded: bool) -> None:
    theirs = torch_layer()
    x = source(6)
    keep = torch.tensor([[1] * 6, [1, 1, 1, 1, 0, 0], [1, 0, 0, 1, 0, 1]]).bool() if padded else None
    later = torch.ones(6, 6).triu(1).bool()
    expected = theirs(x, x, x, attn_mask=later, key_padding_mask=None if keep is None else ~keep)[0]
    ours = multi_head_from_torch(theirs, attend=mechanism(causal=True))
    torch.testing.assert_close(ours(x, x, x, keep), expected, **CLOSE)


@MECHANISMS
def test_equal_to_torch_under_a_pairwise_mask(mechanism: type[nn.Module]) -> None:
    theirs = torch_layer()
    q, k = source(5), source(7)
    keep = torch.rand(3, 5, 7) < 0.5
    keep[:, :, 2] = True
    expected = theirs(q, k, k, attn_mask=(~keep).repeat_interleave(4, dim=0))[0]
    ours = multi_head_from_torch(theirs, attend=mechanism())
    torch.testing.assert_close(ours(q, k, k, keep), expected, **CLOSE)


def test_weights_equal_those_of_torch() -> None:
    theirs = torch_layer(num_heads=1)
    ours = multi_head_from_torch(theirs, attend=FullAttention())
    x = source(6)
    keep = torch.tensor([[1, 1, 1, 0, 0, 0], [0, 0, 1, 1, 1, 1], [1, 0, 0, 1, 0, 1]]).bool()
    weights = ours.attend.weights(ours.query(x)[:, None], ours.key(x)[:, None], keep, None)
    torch.testing.assert_close(weights[:, 0], theirs(x, x, x, key_padding_mask=~keep)[1], **CLOSE)


def test_an_empty_row_gives_the_projection_of_zeros() -> None:
    ours = multi_head_from_torch(torch_layer())
    x = source(4)
    keep = torch.tensor([[0] * 4, [1] * 4, [1] * 4]).bool()
    torch.testing.assert_close(ours(x, x, x, keep)[0], ours.out.bias.expand(4, 24))


def test_defaults_are_those_of_the_paper() -> None:
    layer = MultiHeadAttention()
    assert (layer.out.in_features, layer.num_heads) == (512, 8)
    assert sum(parameter.numel() for parameter in layer.parameters()) == 4 * (512 * 512 + 512)


def test_a_width_that_heads_do_not_share_is_refused() -> None:
    with pytest.raises(ValueError, match="width 130 not divisible by 4 heads"):
        MultiHeadAttention(130, 4)


def test_scripts_as_it_stands() -> None:
    layer = multi_head_from_torch(torch_layer(kdim=10, vdim=36))
    q, k, v = source(5), source(9, 10), source(9, 36)
    torch.testing.assert_close(torch.jit.script(layer)(q, k, v), layer(q, k, v))


@pytest.mark.parametrize("option", ["add_bias_kv", "add_zero_attn"])
def test_layers_of_torch_without_a_counterpart_are_refused(option: str) -> None:
    with pytest.raises(ValueError, match="has no counterpart"):
        multi_head_from_torch(torch_layer(**{option: True}))
