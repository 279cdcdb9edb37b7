"""The encoder against its oracle, and the laws of masks, rows and order."""

import copy
import itertools

import pytest
import torch
from torch import Tensor

from models.attention import ATTENTIONS
from models.block import NORMS
from models.config import EncoderConfig, legal_positions
from models.encoder import Encoder
from models.feed_forward import ACTIVATIONS
from tests import oracles

PAIRS = [
    (attention, position, causal)
    for attention, row in ATTENTIONS.items()
    for position in legal_positions(attention)
    for causal in ([False, True] if row.causal else [False])
]
every_pair = pytest.mark.parametrize(
    ("attention", "position", "causal"), PAIRS, ids=[f"{a}-{p}-{'causal' if c else 'both_ways'}" for a, p, c in PAIRS]
)
EXACT = {"rtol": 1e-9, "atol": 1e-10}


def encoder(**settings: object) -> Encoder:
    """A small encoder in float64 with every parameter random, biases and norms too."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 30, "max_len": 24, "dim": 12, "num_layers": 2, "num_heads": 3, "hidden_dim": 20}
    made = Encoder(EncoderConfig.from_dict(sizes | settings)).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return made.double()


def tokens(batch: int, length: int) -> Tensor:
    return torch.randint(0, 30, (batch, length), generator=torch.Generator().manual_seed(batch * 100 + length))


def spread(ids: Tensor, columns: list[int], width: int) -> tuple[Tensor, Tensor]:
    """Put the tokens of each row at these columns of a wider batch, and rubbish between them."""
    wide, mask = torch.full((len(ids), width), 7), torch.zeros(len(ids), width, dtype=torch.int64)
    wide[:, columns], mask[:, columns] = ids, 1
    return wide, mask


@every_pair
@pytest.mark.parametrize("norm", NORMS)
def test_equals_the_oracle_row_by_row(attention: str, position: str, causal: bool, norm: str) -> None:
    config = {"attention": attention, "position": position, "causal": causal, "norm": norm}
    model = encoder(**config)
    ids = tokens(3, 6)
    mask = torch.tensor([[1, 1, 1, 1, 1, 1], [0, 1, 0, 1, 1, 0], [0, 0, 0, 0, 0, 0]])
    out = model(ids, mask)
    described = {"dim": 12, "num_heads": 3, "activation": "gelu"} | config
    for row, keep, actual in zip(ids, mask.bool(), out, strict=True):
        # The table of sinusoids was rounded to float32, once.
        expected = oracles.encoder_row(row[keep].tolist(), model.state_dict(), described)
        torch.testing.assert_close(actual[keep], expected, rtol=1e-6, atol=1e-6)
        assert actual[~keep].eq(0).all()


@pytest.mark.parametrize(("norm", "activation"), list(itertools.product(NORMS, ACTIVATIONS)))
def test_every_norm_and_activation_equals_the_oracle(norm: str, activation: str) -> None:
    config = {"position": "none", "norm": norm, "activation": activation, "num_layers": 3}
    model = encoder(**config)
    ids = tokens(1, 5)
    expected = oracles.encoder_row(
        ids[0].tolist(), model.state_dict(), {"dim": 12, "num_heads": 3, "causal": False} | config
    )
    torch.testing.assert_close(model(ids, torch.ones_like(ids))[0], expected, **EXACT)


@every_pair
def test_padding_changes_nothing(attention: str, position: str, causal: bool) -> None:
    model = encoder(attention=attention, position=position, causal=causal)
    ids = tokens(2, 5)
    alone = model(ids, torch.ones_like(ids))
    for columns in ([0, 1, 2, 3, 4], [6, 7, 8, 9, 10], [1, 2, 5, 8, 9]):
        wide, mask = spread(ids, columns, 11)
        out = model(wide, mask)
        torch.testing.assert_close(out[:, columns], alone, **EXACT)
        assert out[mask == 0].eq(0).all()


@every_pair
def test_rows_are_independent(attention: str, position: str, causal: bool) -> None:
    model = encoder(attention=attention, position=position, causal=causal)
    ids, mask = tokens(3, 7), torch.tensor([[1] * 7, [1, 1, 1, 0, 0, 0, 0], [0] * 7])
    together = model(ids, mask)
    for row in range(3):
        torch.testing.assert_close(together[row : row + 1], model(ids[row : row + 1], mask[row : row + 1]), **EXACT)
    order = [2, 0, 1]
    torch.testing.assert_close(model(ids[order], mask[order]), together[order], **EXACT)


@pytest.mark.parametrize(("attention", "position"), [(a, p) for a, p, causal in PAIRS if causal])
def test_a_future_token_changes_nothing_when_causal(attention: str, position: str) -> None:
    model = encoder(attention=attention, position=position, causal=True)
    ids = tokens(2, 6)
    changed = ids.clone()
    changed[:, 4:] = (changed[:, 4:] + 1) % 30
    before, after = model(ids, torch.ones_like(ids)), model(changed, torch.ones_like(ids))
    torch.testing.assert_close(after[:, :4], before[:, :4], **EXACT)
    assert not torch.allclose(after[:, 4:], before[:, 4:])


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_permuting_tokens_permutes_outputs_without_positions(attention: str) -> None:
    model = encoder(attention=attention, position="none")
    ids, order = tokens(2, 6), [3, 0, 5, 1, 4, 2]
    mask = torch.ones_like(ids)
    torch.testing.assert_close(model(ids[:, order], mask), model(ids, mask)[:, order], **EXACT)


@every_pair
def test_positions_tell_tokens_apart(attention: str, position: str, causal: bool) -> None:
    model = encoder(attention=attention, position=position, causal=causal)
    out = model(torch.full((1, 4), 3), torch.ones(1, 4, dtype=torch.int64))
    assert torch.allclose(out[:, :1], out[:, 1:]) == (position == "none")


@every_pair
def test_gradients_reach_every_parameter_and_are_finite(attention: str, position: str, causal: bool) -> None:
    model = encoder(attention=attention, position=position, causal=causal).train()
    ids, mask = tokens(3, 5), torch.tensor([[1] * 5, [0, 1, 0, 1, 1], [0] * 5])
    model(ids, mask).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.ne(0).any(), name


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_gradients_of_packed_tokens_equal_finite_differences(attention: str) -> None:
    model = encoder(attention=attention, num_layers=1, position="learned", dropout=0.0)
    ids, mask = tokens(2, 4), torch.tensor([[1, 0, 1, 1], [0, 1, 0, 0]])
    name = "blocks.0.attention.qkv.weight"
    weight = model.get_parameter(name).detach().clone().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda weight: torch.func.functional_call(model, {name: weight}, (ids, mask)), [weight], fast_mode=True
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("attention", ATTENTIONS)
def test_half_precision_is_finite_with_empty_rows(attention: str, dtype: torch.dtype) -> None:
    model = encoder(attention=attention)
    ids, mask = tokens(3, 5), torch.tensor([[1] * 5, [0, 1, 0, 1, 1], [0] * 5])
    half = copy.deepcopy(model).to(dtype)(ids, mask)
    assert half.dtype == dtype
    # Two LayerNormed layers of values up to 3 at 2⁻⁷.
    torch.testing.assert_close(half.double(), model(ids, mask), rtol=0, atol=0.15)


@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (1, 24)], ids=lambda shape: f"B{shape[0]}-T{shape[1]}")
def test_a_batch_without_a_token_gives_zeros_and_trains(shape: tuple[int, int]) -> None:
    model = encoder().train()
    out = model(tokens(*shape), torch.zeros(shape, dtype=torch.int64))
    assert out.shape == (*shape, 12)
    assert out.eq(0).all()
    out.sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_padding_beyond_max_len_is_no_token() -> None:
    model = encoder(position="learned")
    wide, mask = spread(tokens(1, 24), list(range(6, 30)), 30)
    torch.testing.assert_close(model(wide, mask)[:, 6:], model(wide[:, 6:], mask[:, 6:]), **EXACT)


@pytest.mark.parametrize(("position", "deviation"), [("sinusoidal", 128**-0.5), ("learned", 0.02), ("none", 0.02)])
def test_initial_weights(position: str, deviation: float) -> None:
    torch.manual_seed(0)
    sizes = {"vocab_size": 4000, "max_len": 64, "dim": 128, "num_layers": 1, "num_heads": 4, "hidden_dim": 512}
    model = Encoder(EncoderConfig.from_dict(sizes | {"position": position}))
    assert model.embedding.weight.std().item() == pytest.approx(deviation, rel=0.01)
    up = model.blocks[0].feed_forward.up
    assert up.weight.abs().max().item() == pytest.approx((6 / (128 + 512)) ** 0.5, rel=0.01)
    assert up.bias.eq(0).all()
