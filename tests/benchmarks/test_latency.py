"""Timing: turns, warm-up, the statistics, and that the candidates really answer."""

from collections.abc import Iterator

import numpy as np
import onnxruntime as ort
import pytest
import torch

from benchmarks.latency import make_inputs, onnxruntime_candidate, summarise, take_turns, torch_candidate
from export.onnx_export import ONNX_FILE
from export.proof.runtimes import EAGER, open_runtime
from export.proof.runtimes.torch_runtime import load_eager_model
from tests.export.proof.subjects import build_files


def test_candidates_take_turns_after_their_warm_up() -> None:
    order: list[str] = []

    def ticks() -> Iterator[float]:
        now = 0.0
        while True:
            yield now
            now += 1 + len(order) / 100

    clock = ticks()
    seconds = take_turns(
        {"a": lambda: order.append("a"), "b": lambda: order.append("b")},
        warm_up=2,
        runs=3,
        clock=lambda: next(clock),
    )
    assert "".join(order) == "aabb" + "ab" * 3
    assert {name: len(runs) for name, runs in seconds.items()} == {"a": 3, "b": 3}
    assert all(1 < run < 2 for runs in seconds.values() for run in runs)


def test_the_spread_is_the_tenth_and_ninetieth_percentile() -> None:
    row = summarise("c", [0.001 * n for n in range(1, 12)], batch=2, length=5, fill=1.0, tokens=10)
    assert (row.median_ms, row.p10_ms, row.p90_ms) == (6.0, 2.0, 10.0)
    assert row.runs == 11
    assert row.tokens_per_second == round(10 / 0.006)


@pytest.mark.parametrize(("batch", "fill"), [(1, 0.5), (1, 1.0), (8, 0.5), (8, 1.0)])
def test_inputs_have_the_fill_that_was_asked(batch: int, fill: float) -> None:
    ids, mask = make_inputs(batch, 64, fill, 30)
    assert mask.mean() == pytest.approx(fill, abs=0.01)
    assert mask.sum(axis=1).max() == (64 if batch > 1 or fill == 1 else 32)
    assert (mask[:, 1:] <= mask[:, :-1]).all()
    assert ids.shape == mask.shape
    assert ids.max() < 30


def test_candidates_run_the_model_they_were_given() -> None:
    files = build_files()
    ids, mask = make_inputs(3, 7, 0.5, 40)
    seen: list[torch.Tensor] = []
    model = load_eager_model(files.__getitem__)
    model.register_forward_hook(lambda _, __, output: seen.append(output))
    torch_candidate(model, "cpu")(ids, mask)()
    expected = open_runtime(EAGER, files.__getitem__).run(ids, mask)
    np.testing.assert_array_equal(seen[0].numpy(), expected)

    session = Spy(ort.InferenceSession(files[ONNX_FILE], providers=["CPUExecutionProvider"]))
    onnxruntime_candidate(session, "cpu")(ids, mask)()
    np.testing.assert_allclose(session.answers[0], expected, atol=1e-5)


class Spy:
    """A session that keeps what it answers."""

    def __init__(self, session: ort.InferenceSession) -> None:
        self.answers: list[np.ndarray] = []
        self._session = session

    def io_binding(self) -> ort.IOBinding:
        return self._session.io_binding()

    def run_with_iobinding(self, binding: ort.IOBinding) -> None:
        self._session.run_with_iobinding(binding)
        self.answers += binding.copy_outputs_to_cpu()
