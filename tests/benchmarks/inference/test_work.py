"""The batches that are measured, and how a careful user would cut them."""

import numpy as np
import pytest

from benchmarks.inference.cuts import cut_sizes, cut_sorted
from benchmarks.inference.work import ENCODER, SIZES, make_batch

sizes = pytest.mark.parametrize("size", SIZES, ids=[f"{batch}x{length}" for batch, length in SIZES])


@sizes
def test_full_batches_hold_no_padding(size: tuple[int, int]) -> None:
    batch = make_batch(*size, "full")
    assert batch.mask.shape == batch.ids.shape == size
    assert batch.mask.all()
    assert batch.ids.min() >= 0
    assert batch.ids.max() < ENCODER.vocab_size


@sizes
def test_half_full_batches_have_lengths_spread_evenly_in_no_order(size: tuple[int, int]) -> None:
    rows, length = size
    lengths = make_batch(rows, length, "half").lengths
    if rows == 1:
        assert lengths.tolist() == [length // 2]
        return
    assert lengths.mean() / length == pytest.approx(0.5, abs=0.01)
    assert sorted(lengths) == [max(1, round(row * length / (rows - 1))) for row in range(rows)]
    assert lengths.tolist() != sorted(lengths)


@sizes
def test_rows_are_padded_on_the_right_alone(size: tuple[int, int]) -> None:
    mask = make_batch(*size, "half").mask
    assert (mask[:, 1:] <= mask[:, :-1]).all()


def test_a_batch_is_the_same_in_every_run() -> None:
    one, other = make_batch(8, 128, "half"), make_batch(8, 128, "half")
    np.testing.assert_array_equal(one.ids, other.ids)
    np.testing.assert_array_equal(one.mask, other.mask)


@pytest.mark.parametrize("rows", [1, 3, 4, 8, 100])
def test_sorted_cuts_hold_every_row_once_and_pad_to_their_own_longest(rows: int) -> None:
    batch = make_batch(8, 64, "half")
    parts = cut_sorted(batch, rows)
    texts = [tuple(row[:length]) for part in parts for row, length in zip(part.ids, part.lengths, strict=True)]
    assert sorted(texts) == sorted(tuple(row[:length]) for row, length in zip(batch.ids, batch.lengths, strict=True))
    assert [len(text) for text in texts] == sorted(batch.lengths)
    assert all(part.ids.shape == part.mask.shape == (len(part.ids), part.lengths.max()) for part in parts)
    assert {len(part.ids) for part in parts[:-1]} <= {rows}


@pytest.mark.parametrize(("rows", "cuts"), [(1, []), (2, [1]), (8, [4, 2, 1]), (5, [3, 2, 1])])
def test_cuts_halve_a_batch_down_to_single_rows(rows: int, cuts: list[int]) -> None:
    assert cut_sizes(rows) == cuts
