"""The grid holds what was promised: every shape, every kind of mask, the whole range of ids."""

import numpy as np
import pytest

from export.contract import Limits, check_inputs
from export.proof.cases import BATCHES, build_grid, sequence_lengths

LIMITS = Limits(max_length=256, vocab_size=300)


def test_every_case_is_legal_and_named_by_its_shape() -> None:
    names = set()
    for case in build_grid(LIMITS):
        check_inputs(case.input_ids, case.attention_mask, LIMITS)
        batch, length = case.input_ids.shape
        assert case.name.startswith(f"B{batch}-T{length}-")
        names.add(case.name)
    assert len(names) == len(build_grid(LIMITS))


def test_every_shape_meets_every_mask_that_it_can_hold() -> None:
    names = {case.name for case in build_grid(LIMITS)}
    for batch in BATCHES:
        for length in (1, 2, 3, 7, 16, 33, 255, 256):
            kinds = {"ones", "all-empty"}
            kinds |= {"empty-row"} if batch > 1 else set()
            kinds |= {"right", "one-token"} if length > 1 else set()
            kinds |= {"left"} if length > 1 else set()
            kinds |= {"holes"} if length > 2 else set()
            # With two columns a single token is what half a row is.
            missing = {kind for kind in kinds if f"B{batch}-T{length}-{kind}" not in names}
            assert missing <= ({"one-token"} if length <= 3 else set())


def test_masks_are_what_they_are_called() -> None:
    cases = {case.name: case.attention_mask for case in build_grid(LIMITS)}
    assert cases["B8-T33-ones"].all()
    assert not cases["B8-T33-all-empty"].any()
    assert len(set(cases["B8-T33-right"].sum(1))) == 8
    assert (np.diff(cases["B8-T33-right"], axis=1) <= 0).all()
    assert (np.diff(cases["B8-T33-left"], axis=1) >= 0).all()
    assert (cases["B8-T33-one-token"].sum(1) == 1).all()
    assert ((np.diff(cases["B8-T33-holes"], axis=1) != 0).sum(1) >= 2).all()
    assert cases["B8-T33-holes"][:, [0, -1]].all()
    assert (cases["B8-T33-empty-row"].sum(1) == 0).sum() == 1


def test_ids_span_the_vocabulary_at_tokens_and_at_padding() -> None:
    cases = build_grid(LIMITS)
    for kept in (0, 1):
        ids = np.concatenate([case.input_ids[case.attention_mask == kept] for case in cases])
        assert set(ids) == set(range(LIMITS.vocab_size))
    holes = next(case for case in cases if case.name == "B3-T16-holes")
    assert {0, LIMITS.vocab_size - 1} <= set(holes.input_ids[holes.attention_mask == 1])


@pytest.mark.parametrize(
    "limits", [LIMITS, Limits(max_length=3, vocab_size=100), Limits(max_length=256, vocab_size=5000)]
)
def test_every_id_stands_at_a_token_that_every_backend_can_be_asked(limits: Limits) -> None:
    ids = [case.input_ids for case in build_grid(limits) if "ids-from" in case.name and case.attention_mask.all()]
    assert set(np.concatenate(ids, axis=None)) == set(range(limits.vocab_size))
    assert all(rows.shape[1] <= 64 for rows in ids)


def test_a_case_is_a_function_of_the_seed() -> None:
    first, again, other = build_grid(LIMITS), build_grid(LIMITS), build_grid(LIMITS, seed=1)
    assert all((a.input_ids == b.input_ids).all() for a, b in zip(first, again, strict=True))
    assert any((a.input_ids != b.input_ids).any() for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize(
    ("max_length", "lengths"),
    [(3, [1, 2, 3]), (16, [1, 2, 3, 7, 15, 16]), (256, [1, 2, 3, 7, 16, 33, 255, 256])],
)
def test_lengths_end_at_what_the_model_accepts(max_length: int, lengths: list[int]) -> None:
    assert sequence_lengths(max_length) == lengths


@pytest.mark.parametrize("max_length", [1, 3, 64, 300])
def test_every_length_and_a_large_batch_are_among_the_cases(max_length: int) -> None:
    limits = Limits(max_length=max_length, vocab_size=300)
    cases = [case for case in build_grid(limits) if "-odd-" in case.name]
    assert {case.input_ids.shape[1] for case in cases} == set(range(1, min(max_length, 256) + 1))
    assert max(case.input_ids.shape[0] for case in cases) > max(BATCHES)
