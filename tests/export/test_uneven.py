"""Attention by groups of rows: every row gets what it gets alone, whatever its company; and no branch runs in vain."""

import json
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from export.capture import capture
from export.contract import ATTENTION_MASK, INPUT_IDS, Limits
from export.onnx_export import export_onnx
from export.proof.cases import Ids
from export.rewrite.row_groups import GROUPS
from models.config import EncoderConfig
from models.heads import TokenTagger

LAYERS = 2
LIMITS = Limits(max_length=19, vocab_size=40)


@pytest.fixture(scope="module")
def model() -> bytes:
    encoder = EncoderConfig(vocab_size=40, max_len=19, dim=24, num_heads=3, hidden_dim=40, num_layers=LAYERS)
    tagger = TokenTagger(encoder, head="linear", num_labels=5).eval().requires_grad_(False)
    rng = np.random.default_rng(0)
    for parameter in tagger.parameters():
        parameter += parameter.new_tensor(rng.normal(0.0, 0.3, parameter.shape))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own; its tests say which
        return export_onnx(capture(tagger, LIMITS), {})


def session(model: bytes, profile: Path | None = None) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    if profile is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(profile)
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def run(opened: ort.InferenceSession, ids: Ids, mask: Ids) -> np.ndarray:
    (logits,) = opened.run(None, {INPUT_IDS: ids, ATTENTION_MASK: mask})
    return logits


def batch(lengths: list[int], width: int, seed: int = 0) -> tuple[Ids, Ids]:
    """Rows of these lengths whose tokens stand anywhere in the width."""
    rng = np.random.default_rng(seed)
    mask = np.zeros((len(lengths), width), np.int64)
    for row, length in enumerate(lengths):
        mask[row, rng.permutation(width)[:length]] = 1
    return rng.integers(5, 40, mask.shape), mask


# Fewer rows than groups, as many, one more; groups that share rows; lengths that repeat, rise, fall; empty rows.
BATCHES = {
    "two": [7, 3],
    "three-alike-one-not": [5, 5, 5, 4],
    "as-many-as-groups": [1, 2, 3, 4, 5, 6],
    "one-more-than-groups": [19, 1, 18, 2, 17, 3, 16],
    "the-last-groups-share-rows": [*range(1, 20)] * 2,
    "thirty-three": [1 + row * 5 % 19 for row in range(33)],
    "one-long-row": [1] * 12 + [19] + [1] * 12,
    "ones": [1, 1, 1],
    "empty-rows": [0, 9, 0, 4, 0, 0, 1, 12],
    "even": [11] * 7,
    "even-and-empty": [11, 11, 0, 11],
}


@pytest.mark.parametrize("lengths", BATCHES.values(), ids=BATCHES.keys())
def test_a_row_gets_what_it_gets_alone(model: bytes, lengths: list[int]) -> None:
    opened = session(model)
    ids, mask = batch(lengths, 19)
    together = run(opened, ids, mask)
    for row in range(len(lengths)):
        alone = run(opened, ids[row : row + 1], mask[row : row + 1])
        np.testing.assert_allclose(together[row], alone[0], rtol=1e-5, atol=1e-5, err_msg=f"row {row}")


def test_rows_drawn_at_random_get_what_they_get_alone(model: bytes) -> None:
    opened = session(model)
    rng = np.random.default_rng(1)
    for seed in range(60):
        width = int(rng.integers(1, 20))
        ids, mask = batch(rng.integers(0, width + 1, rng.integers(1, 40)).tolist(), width, seed)
        together = run(opened, ids, mask)
        row = int(rng.integers(len(ids)))
        alone = run(opened, ids[row : row + 1], mask[row : row + 1])
        np.testing.assert_allclose(together[row], alone[0], rtol=1e-5, atol=1e-5, err_msg=f"batch {seed}, row {row}")


def operators(model: bytes, folder: Path, lengths: list[int]) -> Counter[str]:
    """Return how often each operator runs for rows of these lengths."""
    opened = session(model, folder / "profile")
    run(opened, *batch(lengths, 19))
    events = json.loads(Path(opened.end_profiling()).read_text("utf-8"))
    return Counter(event["args"]["op_name"] for event in events if event["name"].endswith("_kernel_time"))


@pytest.mark.parametrize("lengths", [[13], [7] * 5, [19] * 32], ids=["one-row", "five-alike", "full"])
def test_even_rows_are_neither_sorted_nor_gathered(model: bytes, tmp_path: Path, lengths: list[int]) -> None:
    ran = operators(model, tmp_path, lengths)
    uneven = operators(model, tmp_path, [*lengths, 1])
    assert (ran["Attention"], uneven["Attention"]) == (LAYERS, LAYERS * GROUPS)
    assert (ran["TopK"], uneven["TopK"]) == (0, 1)
    # Queries, keys and values for each group, and the way back; and the plan's own.
    assert uneven["Gather"] - ran["Gather"] >= LAYERS * (3 * GROUPS + 1)
