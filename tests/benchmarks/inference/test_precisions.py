"""The precisions of a trained model: what is counted as right, and what is shown."""

import numpy as np
import pytest

from benchmarks.inference.ours import FLOAT32
from benchmarks.inference.precisions import HALF_PRECISION, precision_rows, precision_table
from benchmarks.inference.sessions import Model, SessionReady
from benchmarks.inference.work import Batch
from export.contract import NO_ANSWER, TEXT_CLASSIFICATION, TOKEN_CLASSIFICATION
from export.half import write_half
from export.onnx_export import ONNX_FILE
from export.proof.runtimes import Ids
from tests.export.proof.subjects import build_files

SECONDS = {FLOAT32: [0.4, 0.5, 0.9], HALF_PRECISION: [0.8, 0.8, 0.8]}


def batches() -> list[Batch]:
    rng = np.random.default_rng(0)
    return [Batch(ids=rng.integers(5, 20, shape), mask=np.ones(shape, np.int64)) for shape in ((4, 7), (3, 5))]


def right_but_one(model: bytes) -> list[Ids]:
    """What the model answers, but for the very first answer, where it says another label."""
    targets = [logits.argmax(axis=-1) for logits in SessionReady.of_batches(Model(model), batches()).outputs()]
    targets[0].flat[0] = 1 - min(targets[0].flat[0], 1)
    return targets


@pytest.mark.parametrize(("task", "answers"), [(TEXT_CLASSIFICATION, 4 + 3), (TOKEN_CLASSIFICATION, 4 * 7 + 3 * 5 - 2)])
def test_answers_that_are_asked_for_are_counted(task: str, answers: int) -> None:
    model = build_files(task=task)[ONNX_FILE]
    targets = right_but_one(model)
    if task == TOKEN_CLASSIFICATION:
        targets[1][0, :2] = NO_ANSWER
    files = {FLOAT32: model, HALF_PRECISION: write_half(model)}
    float32, half = precision_rows(files, batches(), targets, SECONDS)
    assert float32["accuracy"] == pytest.approx(1 - 1 / answers)
    assert 0 < float32["macro_f1"] < 1
    assert (float32["name"], float32["latency"], half["name"], half["latency"]) == ("float32", 250.0, "fp16", 400.0)
    assert [row["megabytes"] for row in (float32, half)] == [len(data) / 1e6 for data in files.values()]
    assert precision_table([float32]).rows[0][:2] == ["float32", f"{100 * (1 - 1 / answers):.2f} %"]
