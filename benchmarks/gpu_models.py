"""The models that a GPU is checked with: every mechanism and task in two sizes, and the encoder that is timed."""

from typing import Any

from benchmarks.tolerance_models import Architecture, Files, build_files
from export.contract import TEXT_CLASSIFICATION, TOKEN_CLASSIFICATION
from export.model import TASKS, describe_model
from models.attention import ATTENTIONS
from models.config import EncoderConfig

# Heads of 32 and of 64, which the fused kernels of GPUs take; sequences within one tile of such a kernel and beyond it.
SIZES: tuple[dict[str, Any], ...] = (
    {"dim": 64, "num_heads": 2, "hidden_dim": 128, "num_layers": 2, "vocab_size": 200, "max_len": 37},
    {"dim": 128, "num_heads": 2, "hidden_dim": 256, "num_layers": 2, "vocab_size": 200, "max_len": 72},
)
# BERT's shape at half its width.
_TIMED: dict[str, Any] = {
    "dim": 384,
    "num_heads": 12,
    "hidden_dim": 1536,
    "num_layers": 6,
    "vocab_size": 30_000,
    "max_len": 512,
}
# Half precision is of use to trained weights; random ones this large leave bfloat16 no digit to be proven.
PROVEN_WEIGHTS = "trained"
# What takes time does not depend on the weights, so training is left out.
TIMED_WEIGHTS = "spread"
_LABELS = [f"label {index}" for index in range(7)]


def models_to_check() -> list[Architecture]:
    """Return the models whose answers are checked; what can be causal is, where it labels tokens."""
    return [
        _describe(task, **size, attention=attention, causal=row.causal and TASKS[task].per_token)
        for size in SIZES
        for attention, row in ATTENTIONS.items()
        for task in (TEXT_CLASSIFICATION, TOKEN_CLASSIFICATION)
    ]


def model_to_time() -> Architecture:
    return _describe(TEXT_CLASSIFICATION, **_TIMED)


def build(architecture: Architecture, weights: str = PROVEN_WEIGHTS) -> Files:
    """Build a model's files with a kind of weights, a key of the study's WEIGHTS."""
    return next(files for kind, files in build_files(architecture) if kind == weights)


def _describe(task: str, **encoder: Any) -> Architecture:
    pooling = None if TASKS[task].per_token else "mean_max"
    config = describe_model(task, EncoderConfig(**encoder), pooling=pooling, head="mlp", labels=_LABELS)
    return Architecture(seed=0, config=config)
