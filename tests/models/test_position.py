"""Positions: the tables against their oracles, and verbs that are null unless the table names them."""

import copy

import pytest
import torch

from models.config import EncoderConfig
from models.position import POSITIONS
from models.position.base import Position
from models.position.sinusoidal import SinusoidalPosition, sinusoidal_table
from tests import oracles


def build(name: str) -> Position:
    return POSITIONS[name].build(EncoderConfig(vocab_size=9, max_len=12, dim=8, num_heads=2, position=name))


@pytest.mark.parametrize(("max_len", "dim"), [(1, 1), (5, 7), (40, 16)])
def test_sinusoidal_table_equals_the_oracle(max_len: int, dim: int) -> None:
    expected = torch.tensor(
        [[oracles.sinusoid(p, c, dim) for c in range(dim)] for p in range(max_len)], dtype=torch.float64
    )
    torch.testing.assert_close(sinusoidal_table(max_len, dim), expected, rtol=0, atol=1e-12)


def test_sinusoidal_table_is_rounded_once_and_is_no_weight() -> None:
    position = SinusoidalPosition(max_len=500, dim=6)
    assert torch.equal(position.table, sinusoidal_table(500, 6).float())
    assert torch.equal(copy.deepcopy(position).double().table, position.table.double())
    assert position.state_dict() == {}


@pytest.mark.parametrize("name", POSITIONS)
def test_only_the_verb_of_the_table_does_anything(name: str) -> None:
    position, verb = build(name), POSITIONS[name].verb
    x, index = torch.zeros(3, 8), torch.tensor([0, 4, 11])
    assert (verb == "add") != torch.equal(position.add(x, index), x)
    q, k = torch.ones(1, 2, 3, 4), torch.ones(1, 2, 3, 4)
    rotated = position.rotate(q, k, index)
    assert (verb == "rotate") != (torch.equal(rotated[0], q) and torch.equal(rotated[1], k))
    assert (verb == "bias") == (position.bias(index) is not None)


@pytest.mark.parametrize("name", [name for name, row in POSITIONS.items() if row.verb == "add"])
def test_add_depends_on_the_index_alone(name: str) -> None:
    position = build(name)
    x, index = torch.randn(4, 8), torch.tensor([2, 0, 2, 11])
    moved = position.add(x, index) - x
    torch.testing.assert_close(moved[0], moved[2])
    assert not torch.allclose(moved[0], moved[1])
    with pytest.raises((IndexError, RuntimeError), match="out of"):
        position.add(x, index + 1)
