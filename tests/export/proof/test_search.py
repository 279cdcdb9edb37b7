"""The search draws what the contract allows, repeats itself by its seed, and finds what the grid misses."""

import time
from typing import Any

import numpy as np
import pytest

from export.contract import Limits
from export.proof.cases import Case, Ids, build_grid
from export.proof.parity import no_progress
from export.proof.runtimes import EAGER, REFERENCE, Array, BackendError, Runtime
from export.proof.scaled import SCALES, load_scaled
from export.proof.search import Search, search
from tests.export.proof.subjects import ENCODER

LIMITS = Limits(max_length=24, vocab_size=300)
TEXTS = [np.array([2, 17, 18, 3]), np.array([2, 41, 3])]


class Sums(Runtime):
    """Sums the kept ids; `spoil` may add to an answer of an input."""

    def __init__(self, name: str, spoil: Any = lambda ids, mask: 0.0) -> None:
        self.name = name
        self._spoil = spoil
        self.seen: list[tuple[Ids, Ids]] = []

    def run(self, input_ids: Ids, attention_mask: Ids) -> Array:
        self.seen.append((input_ids, attention_mask))
        total = (input_ids * attention_mask).sum(1, keepdims=True).astype(np.float64) / 100
        return np.hstack([total, -total]) + self._spoil(input_ids, attention_mask)


def run(backend: Runtime, count: int = 60, **changes: Any) -> Search:
    return search(
        Sums(REFERENCE), [Sums(EAGER), backend], LIMITS, count=count, texts=TEXTS, track=no_progress, **changes
    )


def test_every_draw_is_legal_and_all_kinds_come_up() -> None:
    backend = Sums("subject")
    result = run(backend, 200)
    assert (result.drawn, result.asked, result.cut) == (200, 200, False)
    shapes, hands = set(), set()
    for ids, mask in backend.seen:
        assert ids.dtype == mask.dtype == np.int64
        assert ids.shape == mask.shape
        assert ids.min() >= 0
        assert ids.max() < LIMITS.vocab_size
        assert set(np.unique(mask)) <= {0, 1}
        shapes.add(ids.shape)
        hands.add((bool((mask == 0).all()), bool((ids == ids.flat[0]).all()), bool(np.isin(17, ids))))
    assert {1, 8} <= {batch for batch, _ in shapes}
    assert {1, 24} <= {length for _, length in shapes}
    # Empty batches, one id everywhere, and real texts.
    assert any(empty for empty, _, _ in hands)
    assert any(single for _, single, _ in hands)
    assert any(text for _, _, text in hands)


def test_a_seed_gives_the_same_draws_and_the_same_worst_case() -> None:
    def spoil(ids: Ids, mask: Ids) -> float:
        return 1e-9 * ids.size

    first, second = Sums("subject", spoil), Sums("subject", spoil)
    results = [run(first), run(second)]
    assert [part.worst and part.worst.name for part in results[0].backends] == [
        part.worst and part.worst.name for part in results[1].backends
    ]
    assert all(np.array_equal(a[0], b[0]) for a, b in zip(first.seen, second.seen, strict=True))
    other = Sums("subject", spoil)
    run(other, seed=1)
    assert any(a[0].tobytes() != b[0].tobytes() for a, b in zip(first.seen, other.seen, strict=False))


def test_it_finds_a_fault_that_no_case_of_the_grid_has() -> None:
    def spoil(ids: Ids, mask: Ids) -> float:
        return float(len(ids) in (5, 6))

    assert not any(len(case.input_ids) in (5, 6) for case in build_grid(LIMITS))
    (part,) = (part for part in run(Sums("subject", spoil), 150).backends if part.backend == "subject")
    assert part.failures
    assert part.max_error == pytest.approx(1.0)
    assert part.worst is not None
    assert len(part.worst.input_ids) in (5, 6)
    assert all(isinstance(failure.case, Case) for failure in part.failures)
    assert part.failures[0].where.startswith("search, B")


def test_the_worst_input_is_that_of_the_largest_error() -> None:
    def spoil(ids: Ids, mask: Ids) -> float:
        return 1e-9 * int((ids * mask).sum() % 997)

    backend = Sums("subject", spoil)
    (_, part) = run(backend).backends
    errors = [spoil(*seen) for seen in backend.seen]
    # The largest came neither first nor last.
    assert max(errors) > max(errors[0], errors[-1])
    assert part.max_error == pytest.approx(max(errors))
    assert part.worst is not None
    assert spoil(part.worst.input_ids, part.worst.attention_mask) == max(errors)


def test_what_does_not_run_is_a_failure_with_its_input() -> None:
    class Refuses(Sums):
        def run(self, input_ids: Ids, attention_mask: Ids) -> Array:
            if len(input_ids) == 7:
                raise BackendError("no room for seven")
            return super().run(input_ids, attention_mask)

    (part,) = (part for part in run(Refuses("subject"), 150).backends if part.backend == "subject")
    assert part.failures
    assert {failure.reason for failure in part.failures} == {"no room for seven"}
    assert all(failure.case is not None and len(failure.case.input_ids) == 7 for failure in part.failures)


def test_a_search_that_the_time_cut_says_so() -> None:
    def slow(ids: Ids, mask: Ids) -> float:
        time.sleep(0.05)
        return 0.0

    result = run(Sums("subject", slow), 1000, seconds=0.2)
    assert result.cut
    assert 1 <= result.drawn < 1000
    assert result.asked == 1000


def test_what_eager_can_not_run_ends_the_search() -> None:
    class Refuses(Sums):
        def run(self, input_ids: Ids, attention_mask: Ids) -> Array:
            raise BackendError("eager is ill")

    with pytest.raises(BackendError, match="eager is ill"):
        search(Sums(REFERENCE), [Refuses(EAGER)], LIMITS, count=5, track=no_progress)


@pytest.mark.parametrize("scale", SCALES)
def test_scaled_files_are_scaled_alike_and_agree(scale: float, good: dict[str, bytes]) -> None:
    reference, runtimes = load_scaled(good.__getitem__, scale)
    limits = Limits(max_length=ENCODER["max_len"], vocab_size=ENCODER["vocab_size"])
    result = search(reference, runtimes, limits, count=20, scale=scale, track=no_progress)
    assert [part.failures for part in result.backends] == [()] * len(runtimes)
    ids = np.arange(12).reshape(2, 6)
    unscaled, _ = load_scaled(good.__getitem__, 1.0)
    assert np.abs(reference.run(ids, np.ones_like(ids)) - unscaled.run(ids, np.ones_like(ids))).max() > 0.1
