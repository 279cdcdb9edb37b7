"""How long an answer takes on a device, from inputs that lie there to logits that are there, and how much that varies.

Every run is waited for: a GPU works on after the call returns. The candidates take turns, run by run, so that a clock
that slows down slows all of them down.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnxruntime as ort
import torch

from export.contract import ATTENTION_MASK, INPUT_IDS, LOGITS
from export.proof.runtimes import Ids

# Kernels are chosen, memory is reserved and scripts are specialised in the first runs of a shape.
WARM_UP = 10
RUNS = 50

Once = Callable[[], None]
# Makes, for ids and mask (batch, sequence) int64, what runs once and returns when the logits are there.
Candidate = Callable[[Ids, Ids], Once]


@dataclass(frozen=True, kw_only=True)
class Latency:
    """One candidate on one shape, in milliseconds; `fill` is the share of the positions that hold tokens."""

    candidate: str
    batch: int
    length: int
    fill: float
    runs: int
    median_ms: float
    p10_ms: float
    p90_ms: float
    tokens_per_second: float


def torch_candidate(module: torch.nn.Module, device: str) -> Candidate:
    """Take a module in eval mode that is on the device."""

    def prepare(input_ids: Ids, attention_mask: Ids) -> Once:
        inputs = torch.from_numpy(input_ids).to(device), torch.from_numpy(attention_mask).to(device)

        def once() -> None:
            with torch.inference_mode():
                module(*inputs)
            if device == "cuda":
                torch.cuda.synchronize()

        return once

    return prepare


def onnxruntime_candidate(session: ort.InferenceSession, device: str) -> Candidate:
    """Take a session whose first provider is the device's."""

    def prepare(input_ids: Ids, attention_mask: Ids) -> Once:
        binding = session.io_binding()
        binding.bind_ortvalue_input(INPUT_IDS, ort.OrtValue.ortvalue_from_numpy(input_ids, device, 0))
        binding.bind_ortvalue_input(ATTENTION_MASK, ort.OrtValue.ortvalue_from_numpy(attention_mask, device, 0))
        binding.bind_output(LOGITS, device, 0)

        def once() -> None:
            session.run_with_iobinding(binding)
            binding.synchronize_outputs()

        return once

    return prepare


def make_inputs(batch: int, length: int, fill: float, vocab_size: int) -> tuple[Ids, Ids]:
    """Make ids and a mask of a fill from 0.5 to 1: rows padded on the right, their lengths spread evenly around it."""
    rng = np.random.default_rng([batch, length])
    ids = rng.integers(0, vocab_size, (batch, length), np.int64)
    spread = np.linspace(2 * fill - 1, 1, batch) if batch > 1 else np.array([fill])
    kept = np.maximum(1, np.round(spread * length))
    return ids, (np.arange(length) < kept[:, None]).astype(np.int64)


def take_turns(
    candidates: Mapping[str, Once],
    *,
    warm_up: int = WARM_UP,
    runs: int = RUNS,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Run the candidates in turns and return the seconds of each run, without those of the warm-up."""
    for once in candidates.values():
        for _ in range(warm_up):
            once()
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(runs):
        for name, once in candidates.items():
            start = clock()
            once()
            seconds[name].append(clock() - start)
    return seconds


def measure_latency(
    candidates: Mapping[str, Candidate],
    shapes: Sequence[tuple[int, int, float]],
    vocab_size: int,
    *,
    warm_up: int = WARM_UP,
    runs: int = RUNS,
) -> Iterator[Latency]:
    """Measure every candidate on every shape (batch, length, fill)."""
    for batch, length, fill in shapes:
        ids, mask = make_inputs(batch, length, fill, vocab_size)
        ready = {name: candidate(ids, mask) for name, candidate in candidates.items()}
        for name, seconds in take_turns(ready, warm_up=warm_up, runs=runs).items():
            yield summarise(name, seconds, batch=batch, length=length, fill=fill, tokens=int(mask.sum()))


def summarise(
    candidate: str, seconds: Sequence[float], *, batch: int, length: int, fill: float, tokens: int
) -> Latency:
    """Reduce the runs of a shape: the median, and the tenth and ninetieth percentiles as the spread."""
    low, median, high = (1e3 * float(value) for value in np.quantile(seconds, (0.1, 0.5, 0.9)))
    return Latency(
        candidate=candidate,
        batch=batch,
        length=length,
        fill=fill,
        runs=len(seconds),
        median_ms=round(median, 4),
        p10_ms=round(low, 4),
        p90_ms=round(high, 4),
        tokens_per_second=round(tokens / (median / 1e3)),
    )
