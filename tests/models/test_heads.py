"""Poolings, the text classifier and the token tagger: oracles, empty rows, training."""

import pytest
import torch

from models.config import EncoderConfig
from models.heads import HEADS, TextClassifier, TokenTagger
from models.pooling import POOLINGS
from tests import oracles

CONFIG = {"vocab_size": 20, "max_len": 16, "dim": 8, "num_layers": 1, "num_heads": 2, "hidden_dim": 12}
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0]])


def classifier(pooling: str, head: str = "linear", **settings: object) -> TextClassifier:
    torch.manual_seed(0)
    model = TextClassifier(EncoderConfig.from_dict(CONFIG | settings), pooling=pooling, head=head, num_labels=5).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


@pytest.mark.parametrize("pooling", POOLINGS)
def test_pooling_equals_the_oracle(pooling: str) -> None:
    # All values negative: a maximum over padding's zeros would show.
    x = -torch.rand(4, 4, 3, dtype=torch.float64) - 1
    pooled = POOLINGS[pooling].build()(x, MASK.bool())
    assert pooled.shape == (4, 3 * POOLINGS[pooling].widths)
    for row, keep, actual in zip(x, MASK.bool(), pooled, strict=True):
        torch.testing.assert_close(actual, oracles.pool_row(row[keep], pooling), rtol=1e-12, atol=0)


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_pooling_is_finite_forward_and_backward(pooling: str, dtype: torch.dtype) -> None:
    x = torch.randn(4, 4, 3).to(dtype).requires_grad_()
    pooled = POOLINGS[pooling].build()(x, MASK.bool())
    assert pooled.dtype == dtype
    pooled.float().square().sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    assert x.grad[MASK == 0].eq(0).all()


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_classifier_equals_the_oracle(pooling: str, activation: str) -> None:
    model = classifier(pooling, activation=activation).double()
    ids = torch.randint(0, 20, (4, 6))
    mask = torch.tensor([[1, 1, 1, 1, 1, 1], [0, 1, 0, 1, 1, 0], [0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 1]])
    logits = model(ids, mask)
    config = CONFIG | {"position": "sinusoidal", "norm": "pre", "activation": activation, "causal": False}
    for row, keep, actual in zip(ids, mask.bool(), logits, strict=True):
        # The table of sinusoids was rounded to float32, once.
        expected = oracles.classify_row(row[keep].tolist(), model.state_dict(), config, pooling)
        torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("pooling", POOLINGS)
def test_an_empty_row_gets_the_head_of_zeros(pooling: str, head: str) -> None:
    model = classifier(pooling, head)
    zeros = torch.zeros(1, 8 * POOLINGS[pooling].widths)
    logits = model(torch.randint(0, 20, (2, 3)), torch.tensor([[0, 0, 0], [1, 1, 1]]))
    torch.testing.assert_close(logits[:1], model.head(zeros))
    assert not torch.allclose(logits[:1], logits[1:])


def test_all_faults_come_at_once() -> None:
    with pytest.raises(ValueError, match="pooling") as caught:
        TextClassifier(EncoderConfig.from_dict(CONFIG), pooling="sum", head="tall", num_labels=1)
    assert str(caught.value).splitlines() == [
        f"head 'tall' is unknown; choose one of {', '.join(HEADS)}.",
        "num_labels must be a whole number, at least 2; got 1.",
        f"pooling 'sum' is unknown; choose one of {', '.join(POOLINGS)}.",
    ]


def test_state_dict_holds_parameters_only() -> None:
    model = classifier("mean")
    assert model.state_dict().keys() == dict(model.named_parameters()).keys()


@pytest.mark.parametrize("head", HEADS)
def test_learns_a_rule_from_scratch(head: str) -> None:
    """The label is the first token's parity: embeddings, blocks and head must all pass gradients on."""
    model = classifier("first", head, dropout=0.0).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    ids, mask = torch.randint(0, 20, (32, 4)), torch.ones(32, 4, dtype=torch.int64)
    for _ in range(50):
        loss = torch.nn.functional.cross_entropy(model(ids, mask), ids[:, 0] % 2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.1


def tagger(head: str = "linear", **settings: object) -> TokenTagger:
    torch.manual_seed(0)
    model = TokenTagger(EncoderConfig.from_dict(CONFIG | settings), head=head, num_labels=5).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


@pytest.mark.parametrize("head", HEADS)
def test_tagger_equals_the_oracle_and_is_zero_at_padding(head: str) -> None:
    model = tagger(head).double()
    ids = torch.randint(0, 20, (4, 6))
    mask = torch.tensor([[1, 1, 1, 1, 1, 1], [0, 1, 0, 1, 1, 0], [0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 1]])
    logits = model(ids, mask)
    config = CONFIG | {"position": "sinusoidal", "norm": "pre", "activation": "gelu", "causal": False}
    assert logits.shape == (4, 6, 5)
    for row, keep, actual in zip(ids, mask.bool(), logits, strict=True):
        assert actual[~keep].eq(0).all()
        # The table of sinusoids was rounded to float32, once.
        expected = oracles.tag_row(row[keep].tolist(), model.state_dict(), config)
        torch.testing.assert_close(actual[keep], expected.reshape(-1, 5), rtol=1e-6, atol=1e-6)


def test_tagger_tells_all_faults_at_once() -> None:
    with pytest.raises(ValueError, match="num_labels") as caught:
        TokenTagger(EncoderConfig.from_dict(CONFIG), head="tall", num_labels=1)
    assert str(caught.value).splitlines() == [
        f"head 'tall' is unknown; choose one of {', '.join(HEADS)}.",
        "num_labels must be a whole number, at least 2; got 1.",
    ]


def test_tagger_learns_a_rule_from_scratch() -> None:
    """The tag is the parity of the token before: attention and positions must pass gradients on."""
    model = tagger(dropout=0.0, position="learned").train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    ids, mask = torch.randint(0, 20, (64, 6)), torch.ones(64, 6, dtype=torch.int64)
    wanted = torch.cat((torch.zeros(64, 1, dtype=torch.int64), ids[:, :-1] % 2), dim=1)
    for _ in range(150):
        loss = torch.nn.functional.cross_entropy(model(ids, mask).flatten(0, 1), wanted.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.1
