"""The work that is measured: one BERT-like encoder, six shapes, two fills; and batches of the trained model's own."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.latency import make_inputs
from export.contract import TOKENIZER_FILE
from export.files import read_json
from export.model import CONFIG_FILE, model_limits
from export.proof.runtimes import Ids
from export.tokenizer import Tokenizer
from models.config import EncoderConfig
from pipeline.data.test_split import TEST_SPLIT_FILE, read_test_split
from pipeline.tasks import TASKS

ENCODER = EncoderConfig(
    vocab_size=30_522,
    max_len=512,
    dim=384,
    num_layers=6,
    num_heads=12,
    hidden_dim=1536,
    position="learned",
    norm="post",
)
LABELS = 8
# Batch and sequence.
SIZES = ((1, 16), (1, 128), (8, 128), (32, 64), (16, 256), (1, 512))
# The share of positions that hold tokens.
FILLS = {"full": 1.0, "half": 0.5}
HALF = "half"
TRAINED_BATCH = 32


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Ids and mask, (batch, sequence) int64; rows are padded on the right."""

    ids: Ids
    mask: Ids

    @property
    def lengths(self) -> Ids:
        """(batch,) int64: the tokens of each row."""
        lengths: Ids = self.mask.sum(axis=1)
        return lengths


def name_size(batch: int, length: int) -> str:
    return f"{batch}x{length}"


def make_batch(batch: int, length: int, fill: str) -> Batch:
    """Draw a batch of a fill, a key of FILLS; where it is half, lengths are spread evenly over 1 … length.

    The rows stand in a random order, and a batch of one row is half full itself.
    """
    ids, mask = make_inputs(batch, length, FILLS[fill], ENCODER.vocab_size)
    order = np.random.default_rng([batch, length]).permutation(batch)
    return Batch(ids=ids[order], mask=mask[order])


def read_own_batches(train: Path) -> tuple[list[Batch], list[Ids]]:
    """Cut the test split of a training, in its own order, into batches as wide as their longest text.

    Returns:
        The batches, and of each the right labels, (B,) or (B, T), NO_ANSWER where none is asked for.

    Raises:
        ValueError: if the folder does not hold a training of this version.
    """
    config = read_json(train / CONFIG_FILE)
    tokenizer = Tokenizer((train / TOKENIZER_FILE).read_bytes(), max_length=model_limits(config).max_length)
    examples = TASKS[config["task"]].encode(tokenizer, read_test_split(train / TEST_SPLIT_FILE))
    batches, answers = [], []
    for start in range(0, len(examples), TRAINED_BATCH):
        ids, mask, targets = examples.batch(list(range(start, min(start + TRAINED_BATCH, len(examples)))))
        batches.append(Batch(ids=ids, mask=mask))
        answers.append(targets)
    return batches, answers
