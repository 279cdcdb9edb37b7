"""EncoderConfig: all errors at once, in words; to a dict and back."""

import dataclasses
import json

import pytest

from models.attention import ATTENTIONS
from models.config import EncoderConfig, legal_positions
from models.position import POSITIONS


def test_round_trip_through_json() -> None:
    config = EncoderConfig(vocab_size=100, max_len=32, dim=64, num_heads=2, causal=True, dropout=0.0)
    assert EncoderConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_defaults() -> None:
    assert EncoderConfig(vocab_size=4000, max_len=192).to_dict() == {
        "vocab_size": 4000,
        "max_len": 192,
        "dim": 512,
        "num_layers": 6,
        "num_heads": 8,
        "hidden_dim": 2048,
        "attention": "sdpa",
        "position": "sinusoidal",
        "norm": "pre",
        "activation": "gelu",
        "causal": False,
        "dropout": 0.1,
    }


def test_width_and_heads_are_both_named() -> None:
    with pytest.raises(
        ValueError, match=r"^width 130 not divisible by 4 heads; set dim to 132, or change num_heads\.$"
    ):
        EncoderConfig(vocab_size=9, max_len=9, dim=130, num_heads=4)


def test_all_errors_come_at_once() -> None:
    with pytest.raises(ValueError, match="vocab_size") as caught:
        EncoderConfig(
            vocab_size=0,
            max_len=True,
            dim=1,
            num_layers=2.0,  # type: ignore[arg-type]
            attention="flash",
            position="rotating",
            norm="middle",
            activation="tanh",
            causal=1,  # type: ignore[arg-type]
            dropout=1.0,
        )
    assert str(caught.value).splitlines() == [
        "vocab_size must be a whole number, at least 1; got 0.",
        "max_len must be a whole number, at least 1; got True.",
        "dim must be a whole number, at least 2; got 1.",
        "num_layers must be a whole number, at least 1; got 2.0.",
        "dropout must be a number, at least 0 and below 1; got 1.0.",
        "causal must be true or false; got 1.",
        f"attention 'flash' is unknown; choose one of {', '.join(ATTENTIONS)}.",
        f"position 'rotating' is unknown; choose one of {', '.join(POSITIONS)}.",
        "norm 'middle' is unknown; choose one of pre, post.",
        "activation 'tanh' is unknown; choose one of relu, gelu.",
    ]


def test_unknown_and_missing_keys_are_named() -> None:
    with pytest.raises(ValueError, match="is not an encoder setting") as caught:
        EncoderConfig.from_dict({"vocab_size": 9, "heads": 2, "width": 4})
    lines = str(caught.value).splitlines()
    assert [line.split(" ")[0] for line in lines] == ["heads", "max_len", "width"]
    assert lines[1] == "max_len is missing; it has no default."


def test_a_config_can_not_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        EncoderConfig(vocab_size=9, max_len=9).dim = 4  # type: ignore[misc]


def test_impossible_pairs_are_refused_with_the_legal_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    blind = dataclasses.replace(ATTENTIONS["full"], causal=False, bias=False)
    monkeypatch.setitem(ATTENTIONS, "blind", blind)
    monkeypatch.setitem(POSITIONS, "slope", dataclasses.replace(POSITIONS["none"], verb="bias"))
    assert "slope" in legal_positions("full")
    assert "slope" not in legal_positions("blind")
    with pytest.raises(ValueError, match="can't be causal") as caught:
        EncoderConfig(vocab_size=9, max_len=9, attention="blind", position="slope", causal=True)
    assert str(caught.value).splitlines() == [
        "attention 'blind' can't use position 'slope'; choose one of none, sinusoidal, learned.",
        "attention 'blind' can't be causal; choose one of full, sdpa.",
    ]
