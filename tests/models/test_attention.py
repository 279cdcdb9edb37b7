"""Mechanisms: each against its oracle, and the laws that every row of ATTENTIONS keeps."""

import pytest
import torch
from torch import Tensor, nn

from models.attention import ATTENTIONS
from models.config import EncoderConfig
from tests import oracles

CAUSAL = [name for name, row in ATTENTIONS.items() if row.causal]
PAIRWISE = [name for name, row in ATTENTIONS.items() if row.pairwise]
BIASED = [name for name, row in ATTENTIONS.items() if row.bias]
WITH_WEIGHTS = [name for name, row in ATTENTIONS.items() if row.weights]
CASES = [(name, causal) for name, row in ATTENTIONS.items() for causal in ([False, True] if row.causal else [False])]
every_mechanism = pytest.mark.parametrize(
    ("name", "causal"), CASES, ids=[f"{name}-{'causal' if causal else 'both_ways'}" for name, causal in CASES]
)

# float64 loops against float64 tensors: only the order of the sums differs.
EXACT = {"rtol": 1e-10, "atol": 1e-12}


def build(name: str, causal: bool) -> nn.Module:
    config = EncoderConfig(vocab_size=9, max_len=16, dim=8, num_heads=2, num_layers=1, causal=causal, attention=name)
    return ATTENTIONS[name].build(config)


def tensors(*, queries: int = 5, keys: int = 5, width: int = 4, value_width: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(queries * 100 + keys)
    shapes = (2, 3, queries, width), (2, 3, keys, width), (2, 3, keys, value_width)
    q, k, v = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)
    return q, k, v


KEEPS = {
    "none": None,
    "all": torch.ones(2, 5, dtype=torch.bool),
    "right": torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]).bool(),
    "left": torch.tensor([[0, 0, 1, 1, 1], [0, 1, 1, 1, 1]]).bool(),
    "holes": torch.tensor([[1, 0, 1, 0, 1], [0, 1, 0, 0, 1]]).bool(),
    "one_empty_row": torch.tensor([[0, 0, 0, 0, 0], [1, 1, 0, 0, 0]]).bool(),
    "all_empty": torch.zeros(2, 5, dtype=torch.bool),
}
every_keep = pytest.mark.parametrize("keep", KEEPS.values(), ids=KEEPS.keys())


@every_mechanism
@every_keep
def test_equals_the_oracle(name: str, causal: bool, keep: Tensor | None) -> None:
    q, k, v = tensors(value_width=6)
    out = build(name, causal)(q, k, v, keep, None)
    torch.testing.assert_close(out, oracles.attention(q, k, v, keep=keep, causal=causal), **EXACT)


@every_mechanism
def test_equals_the_oracle_with_more_keys_than_queries(name: str, causal: bool) -> None:
    q, k, v = tensors(queries=3, keys=5, value_width=2)
    keep = KEEPS["holes"]
    out = build(name, causal)(q, k, v, keep, None)
    torch.testing.assert_close(out, oracles.attention(q, k, v, keep=keep, causal=causal), **EXACT)


@pytest.mark.parametrize("name", BIASED)
@pytest.mark.parametrize("rows", [1, 2])
@every_keep
def test_equals_the_oracle_with_a_bias(name: str, rows: int, keep: Tensor | None) -> None:
    q, k, v = tensors()
    bias = torch.linspace(-2, 2, rows * 3 * 25, dtype=torch.float64).reshape(rows, 3, 5, 5)
    out = build(name, causal=False)(q, k, v, keep, bias)
    torch.testing.assert_close(out, oracles.attention(q, k, v, keep=keep, bias=bias), **EXACT)


@pytest.mark.parametrize("name", PAIRWISE)
@pytest.mark.parametrize("causal", [False, True])
def test_equals_the_oracle_with_a_pairwise_mask(name: str, causal: bool) -> None:
    q, k, v = tensors()
    keep = torch.rand(2, 5, 5, generator=torch.Generator().manual_seed(1)) < 0.6
    keep[0, 1] = False
    out = build(name, causal)(q, k, v, keep, None)
    torch.testing.assert_close(out, oracles.attention(q, k, v, keep=keep, causal=causal), **EXACT)
    assert out[0, :, 1].eq(0).all()


@pytest.mark.parametrize("name", WITH_WEIGHTS)
@pytest.mark.parametrize("causal", [False, True])
@every_keep
def test_weights_equal_the_oracle_and_sum_to_one_or_zero(name: str, causal: bool, keep: Tensor | None) -> None:
    q, k, _ = tensors()
    weights = build(name, causal).weights(q, k, keep, None)
    torch.testing.assert_close(weights, oracles.attention_weights(q, k, keep=keep, causal=causal), **EXACT)
    sums = weights.sum(-1)
    assert ((sums - 1).abs() < 1e-9).logical_or(sums == 0).all()


@pytest.mark.parametrize("name", [name for name, row in ATTENTIONS.items() if not row.weights])
def test_no_weights_where_the_table_declares_none(name: str) -> None:
    assert not hasattr(build(name, causal=False), "weights")


@every_mechanism
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@every_keep
def test_is_finite_in_half_precision_forward_and_backward(
    name: str, causal: bool, dtype: torch.dtype, keep: Tensor | None
) -> None:
    # Scores beyond ±100: exp() overflows without the maximum taken out.
    leaves = [(8 * x).to(dtype).requires_grad_() for x in tensors()]
    # Anomaly detection also sees a NaN that a later mask would hide.
    with torch.autograd.set_detect_anomaly(True):
        out = build(name, causal)(*leaves, keep, None)
        out.float().square().sum().backward()
    for x in (out, *(leaf.grad for leaf in leaves)):
        assert x is not None
        assert x.dtype == dtype
        assert x.isfinite().all()


@every_mechanism
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float16, 0.01), (torch.bfloat16, 0.08)], ids=str)
def test_half_precision_is_near_the_oracle(name: str, causal: bool, dtype: torch.dtype, tolerance: float) -> None:
    # Ten units in the last place of a value near 1: inputs, scores, weights and sums are each rounded.
    q, k, v = (x.to(dtype) for x in tensors())
    for keep in KEEPS.values():
        expected = oracles.attention(q, k, v, keep=keep, causal=causal)
        torch.testing.assert_close(build(name, causal)(q, k, v, keep, None).double(), expected, rtol=0, atol=tolerance)


@every_mechanism
def test_a_masked_key_loses_against_the_lowest_score(name: str, causal: bool) -> None:
    q, k, v = tensors()
    q, k = torch.full_like(q, 1e4), torch.full_like(k, -1e4)
    keep = torch.tensor([[1, 0, 0, 0, 0], [1, 0, 0, 0, 0]]).bool()
    out = build(name, causal)(q, k, v, keep, None)
    torch.testing.assert_close(out, v[:, :, :1].expand_as(out), **EXACT)


@every_mechanism
def test_an_empty_row_is_zero_and_has_zero_gradients(name: str, causal: bool) -> None:
    leaves = [x.requires_grad_() for x in tensors()]
    out = build(name, causal)(*leaves, KEEPS["one_empty_row"], None)
    out.square().sum().backward()
    assert out[0].eq(0).all()
    assert out[1].ne(0).all()
    for leaf in leaves:
        assert leaf.grad is not None
        assert leaf.grad[0].eq(0).all()
        assert leaf.grad.isfinite().all()


@every_mechanism
@pytest.mark.parametrize(
    "rows", [None, [[1, 0, 1], [0, 1, 1]], [[0, 0, 0], [1, 1, 0]]], ids=["none", "holes", "one_empty_row"]
)
def test_gradients_equal_finite_differences(name: str, causal: bool, rows: list[list[int]] | None) -> None:
    mechanism = build(name, causal)
    keep = None if rows is None else torch.tensor(rows).bool()
    leaves = [x[:, :1].requires_grad_() for x in tensors(queries=3, keys=3, width=2, value_width=3)]
    assert torch.autograd.gradcheck(lambda q, k, v: mechanism(q, k, v, keep, None), leaves)


@pytest.mark.parametrize("name", BIASED)
def test_gradient_of_a_bias_equals_finite_differences(name: str) -> None:
    mechanism = build(name, causal=True)
    q, k, v = tensors(queries=3, keys=3, width=2, value_width=3)
    keep = torch.tensor([[0, 0, 0], [1, 1, 0]]).bool()
    bias = torch.zeros(1, 3, 3, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda bias: mechanism(q, k, v, keep, bias), [bias])


@every_mechanism
def test_a_masked_key_changes_nothing(name: str, causal: bool) -> None:
    q, k, v = tensors()
    keep = KEEPS["holes"]
    assert keep is not None
    masked = ~keep[:, None, :, None]
    mechanism = build(name, causal)
    changed = mechanism(q, k.masked_fill(masked, 50.0), v.masked_fill(masked, -50.0), keep, None)
    torch.testing.assert_close(changed, mechanism(q, k, v, keep, None), **EXACT)


@pytest.mark.parametrize("name", CAUSAL)
def test_a_future_token_changes_nothing(name: str) -> None:
    q, k, v = tensors()
    mechanism = build(name, causal=True)
    before = mechanism(q, k, v, None, None)
    k[:, :, 3:], v[:, :, 3:] = 7.0, -7.0
    after = mechanism(q, k, v, None, None)
    torch.testing.assert_close(after[:, :, :3], before[:, :, :3], **EXACT)
    assert not torch.allclose(after[:, :, 3:], before[:, :, 3:])


@every_mechanism
def test_is_scriptable_with_and_without_a_mask(name: str, causal: bool) -> None:
    mechanism = build(name, causal)
    scripted = torch.jit.script(mechanism)
    q, k, v = tensors()
    for keep in KEEPS.values():
        torch.testing.assert_close(scripted(q, k, v, keep, None), mechanism(q, k, v, keep, None), **EXACT)
