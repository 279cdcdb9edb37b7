"""Shrinking: on failures whose smallest input is known, the smallest is found, within the stated number of runs."""

from collections.abc import Callable

import numpy as np
import pytest

from export.proof.cases import Case, Ids
from export.proof.shrink import MOST_RUNS, shrink

Condition = Callable[[Ids, Ids], bool]


def case_of(batch: int = 8, length: int = 19, *, seed: int = 0, mask: Ids | None = None) -> Case:
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, 40, (batch, length), np.int64)
    if mask is None:
        mask = rng.integers(0, 2, (batch, length), np.int64)
        mask[batch // 2] = 0
        mask[0] = 1
    ids[-1, -1] = 37
    return Case(name="given", input_ids=ids, attention_mask=mask)


def fails_if(condition: Condition) -> Callable[[Case], str | None]:
    return lambda case: "wrong" if condition(case.input_ids, case.attention_mask) else None


# What fails, and the ids and the mask of the smallest input that does.
KNOWN: dict[str, tuple[Condition, list[list[int]], list[list[int]]]] = {
    "always": (lambda ids, mask: True, [[0]], [[1]]),
    "an id": (lambda ids, mask: bool((ids == 37).any()), [[37]], [[1]]),
    "a large id": (lambda ids, mask: bool((ids >= 10).any()), [[10]], [[1]]),
    "an empty row": (lambda ids, mask: bool((mask.sum(1) == 0).any()), [[0]], [[0]]),
    "padding beside a token": (lambda ids, mask: bool(((mask == 0).any(1) & mask.any(1)).any()), [[0, 0]], [[1, 0]]),
    "a long sequence": (lambda ids, mask: ids.shape[1] > 11, [[0] * 12], [[1] * 12]),
    "a batch": (lambda ids, mask: len(ids) > 5, [[0]] * 6, [[1]] * 6),
    "three tokens in a row": (lambda ids, mask: bool((mask.sum(1) >= 3).any()), [[0] * 3], [[1] * 3]),
    "a hole": (
        lambda ids, mask: bool((np.diff(mask, axis=1) == -1).any() and (np.diff(mask) == 1).any()),
        [[0] * 3],
        [],
    ),
    "two rows that differ": (lambda ids, mask: len({row.tobytes() for row in ids}) > 1, [[0], [1]], [[1], [1]]),
}


@pytest.mark.parametrize("name", KNOWN)
def test_the_smallest_input_is_found(name: str) -> None:
    condition, ids, mask = KNOWN[name]
    found = shrink(case_of(), fails_if(condition))
    assert found.complete
    assert found.runs <= MOST_RUNS
    assert found.reason == "wrong"
    assert found.case.input_ids.shape == np.shape(ids)
    if name != "two rows that differ":
        assert found.case.input_ids.tolist() == ids
    if mask:
        assert found.case.attention_mask.tolist() == mask
    assert condition(found.case.input_ids, found.case.attention_mask)
    assert found.case.input_ids.dtype == found.case.attention_mask.dtype == np.int64
    assert found.case.name == f"B{len(ids)}-T{len(ids[0])}-shrunk"


def test_columns_apart_from_each_other_are_kept() -> None:
    case = case_of(3, 16, mask=np.ones((3, 16), np.int64))
    case.input_ids[:] = 0
    case.input_ids[1, [2, 9, 14]] = [5, 6, 7]

    def condition(ids: Ids, mask: Ids) -> bool:
        return any([int(i) for i in row if i >= 5] == [5, 6, 7] for row in ids)

    assert shrink(case, fails_if(condition)).case.input_ids.tolist() == [[5, 6, 7]]


def test_a_smaller_shape_that_no_dropping_reaches_is_found() -> None:
    # Fails as 4 × 4 and as 1 × 2, and at no shape between.
    found = shrink(case_of(4, 4), fails_if(lambda ids, mask: ids.shape in {(4, 4), (1, 2)}))
    assert found.case.input_ids.tolist() == [[0, 0]]
    assert found.complete


def test_shrinking_again_gives_the_same_and_asks_nothing_twice() -> None:
    asked: list[tuple[tuple[int, ...], bytes, bytes]] = []

    def fails(case: Case) -> str | None:
        asked.append((case.input_ids.shape, case.input_ids.tobytes(), case.attention_mask.tobytes()))
        return "wrong" if case.attention_mask.sum() >= 4 else None

    first = shrink(case_of(), fails)
    assert len(asked) == len(set(asked)) == first.runs
    second = shrink(case_of(), fails)
    assert np.array_equal(first.case.input_ids, second.case.input_ids)
    assert np.array_equal(first.case.attention_mask, second.case.attention_mask)
    assert (first.reason, first.runs) == (second.reason, second.runs)


def test_the_number_of_runs_is_bounded_and_what_was_found_till_then_is_told() -> None:
    found = shrink(case_of(8, 19), fails_if(lambda ids, mask: ids.shape[1] > 17), most_runs=7)
    assert found.runs == 7
    assert not found.complete
    assert found.case.input_ids.size < 8 * 19


def test_the_reason_is_that_of_the_smallest_input() -> None:
    assert shrink(case_of(), lambda case: f"{case.input_ids.size} cells").reason == "1 cells"


def test_a_case_that_passes_is_refused() -> None:
    with pytest.raises(ValueError, match="the case given must fail to be made smaller; it passes"):
        shrink(case_of(), lambda case: None)
