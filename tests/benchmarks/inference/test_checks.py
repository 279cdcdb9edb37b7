"""What is refused before anything is timed."""

import numpy as np
import pytest
import torch

from benchmarks.inference.checks import INT8_SHARE, check_ours, check_peer
from benchmarks.inference.sessions import Model, SessionReady
from benchmarks.inference.work import Batch
from export.errors import FerryError
from export.onnx_export import ONNX_FILE
from export.proof.runtimes.torch_runtime import load_eager_model
from tests.export.proof.subjects import build_files


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    return dict(build_files())


@pytest.fixture(scope="module")
def model(files: dict[str, bytes]) -> torch.nn.Module:
    return load_eager_model(files.__getitem__)


@pytest.fixture(scope="module")
def batch() -> Batch:
    ids = np.random.default_rng(0).integers(0, 40, (3, 7))
    return Batch(ids=ids, mask=(np.arange(7) < np.array([7, 2, 4])[:, None]).astype(np.int64))


@pytest.fixture(scope="module")
def logits(files: dict[str, bytes], batch: Batch) -> np.ndarray:
    (answer,) = SessionReady.of_batches(Model(files[ONNX_FILE]), [batch]).outputs()
    return answer


def test_a_right_answer_passes(model: torch.nn.Module, batch: Batch, logits: np.ndarray) -> None:
    check_ours("ferry", model, batch, logits, int8=False)


def test_a_wrong_answer_stops_the_run(model: torch.nn.Module, batch: Batch, logits: np.ndarray) -> None:
    for wrong in (logits + 1e-3, logits[:, ::-1], np.full_like(logits, np.nan), logits[:2]):
        with pytest.raises(FerryError, match=r"ferry answers 3 × 7 wrongly: .+ Nothing was timed"):
            check_ours("ferry", model, batch, wrong, int8=False)


def test_int8_may_round_and_no_more(model: torch.nn.Module, batch: Batch, logits: np.ndarray) -> None:
    step = np.abs(logits).max() * INT8_SHARE
    check_ours("ferry-int8-static", model, batch, logits + 0.9 * step, int8=True)
    with pytest.raises(FerryError, match="ferry-int8-static answers 3 × 7 wrongly"):
        check_ours("ferry-int8-static", model, batch, logits + 1.1 * step, int8=True)


def test_a_peer_must_answer_every_row_with_finite_numbers() -> None:
    check_peer("p", [np.zeros((2, 5)), np.zeros((1, 5))], 3)
    for outputs in ([np.zeros((2, 5))], [np.zeros((3, 5, 5))], [np.full((3, 5), np.inf)], []):
        with pytest.raises(FerryError, match="p must answer 3 rows with one finite vector each"):
            check_peer("p", outputs, 3)


def test_several_batches_are_one_answer(files: dict[str, bytes], batch: Batch, logits: np.ndarray) -> None:
    """A session answers sub-batches one after another, and one number is their time."""
    halves = [Batch(ids=batch.ids[rows], mask=batch.mask[rows]) for rows in (slice(0, 2), slice(2, 3))]
    ready = SessionReady.of_batches(Model(files[ONNX_FILE]), halves)
    np.testing.assert_allclose(np.concatenate(ready.outputs()), logits, atol=1e-6)
    assert len(ready.answer(3)) == 3
