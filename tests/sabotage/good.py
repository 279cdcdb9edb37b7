"""GOOD: a hundred small models that differ in everything a configuration can say, four seeds of each kind."""

from typing import Any

from export.contract import TEXT_CLASSIFICATION, TOKEN_CLASSIFICATION
from tests.export.proof.subjects import LABELS
from tests.sabotage.artifact import Recipe

SEEDS = range(4)
_TAGS = ("O", "B-x", "I-x", "B-y", "I-y")

# Each: how the head is made, and where the encoder differs from the subjects'.
_CLASSIFIERS: tuple[tuple[str, str, int, dict[str, Any]], ...] = (
    ("mean", "linear", 2, {}),
    ("mean", "mlp", 3, {"position": "learned"}),
    ("first", "linear", 5, {"position": "none", "norm": "post"}),
    ("first", "mlp", 2, {"attention": "full", "max_len": 3}),
    ("max", "linear", 4, {"activation": "relu", "max_len": 5}),
    ("max", "mlp", 5, {"causal": True}),
    ("mean_max", "linear", 2, {"attention": "full", "causal": True, "norm": "post"}),
    ("mean_max", "mlp", 5, {"num_layers": 2}),
    ("mean_max", "mlp", 3, {"num_heads": 1, "position": "learned", "activation": "relu"}),
    ("mean", "linear", 5, {"num_heads": 4, "norm": "post", "max_len": 33}),
    ("mean", "mlp", 4, {"num_heads": 16, "max_len": 8}),
    ("first", "linear", 3, {"attention": "full", "position": "learned", "causal": True, "max_len": 12}),
    ("first", "mlp", 5, {"hidden_dim": 16, "dim": 8, "max_len": 40}),
    ("max", "linear", 2, {"position": "none", "attention": "full", "activation": "relu"}),
    ("max", "mlp", 3, {"position": "learned", "norm": "post", "num_layers": 2, "max_len": 7}),
    ("mean_max", "linear", 5, {"dim": 24, "num_heads": 3, "max_len": 16}),
    ("mean_max", "mlp", 2, {"attention": "full", "num_heads": 4, "max_len": 64}),
)
_TAGGERS: tuple[tuple[str, int, dict[str, Any]], ...] = (
    ("linear", 3, {}),
    ("mlp", 5, {"position": "learned", "max_len": 9}),
    ("linear", 5, {"attention": "full", "norm": "post"}),
    ("mlp", 3, {"causal": True, "activation": "relu"}),
    ("linear", 3, {"position": "none", "num_heads": 1}),
    ("mlp", 3, {"num_layers": 2, "max_len": 24}),
    ("linear", 5, {"attention": "full", "causal": True, "position": "learned", "num_heads": 4, "max_len": 5}),
    ("mlp", 5, {"norm": "post", "activation": "relu", "hidden_dim": 48}),
)

GOOD: tuple[Recipe, ...] = (
    *(
        Recipe(
            seed=seed,
            task=TEXT_CLASSIFICATION,
            pooling=pooling,
            head=head,
            labels=tuple(LABELS[:count]),
            # Each seed has a threshold of its own, off and on.
            threshold=(0.0, 0.3, 0.5, 0.1)[seed],
            encoder=encoder,
        )
        for pooling, head, count, encoder in _CLASSIFIERS
        for seed in SEEDS
    ),
    *(
        Recipe(seed=seed, task=TOKEN_CLASSIFICATION, head=head, labels=_TAGS[:count], threshold=0.0, encoder=encoder)
        for head, count, encoder in _TAGGERS
        for seed in SEEDS
    ),
)
