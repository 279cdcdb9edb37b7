import random

import pytest

from pipeline.data.batching import cut_batches, length_buckets

LENGTHS = random.Random(0).choices(range(1, 65), k=500)


def test_every_row_appears_once_and_no_batch_is_too_large():
    batches = length_buckets(LENGTHS, batch_tokens=256, seed=0, epoch=0)
    assert sorted(row for batch in batches for row in batch) == list(range(500))
    assert all(len(batch) * max(LENGTHS[row] for row in batch) <= 256 for batch in batches)


def test_order_is_a_function_of_seed_and_epoch():
    def plan(seed, epoch):
        return length_buckets(LENGTHS, batch_tokens=256, seed=seed, epoch=epoch)

    assert plan(1, 2) == plan(1, 2)
    assert plan(1, 2) != plan(1, 3)
    assert plan(1, 2) != plan(2, 2)


def test_rows_of_a_batch_are_of_similar_length():
    batches = length_buckets(LENGTHS, batch_tokens=256, seed=0, epoch=0)
    padded = sum(len(batch) * max(LENGTHS[row] for row in batch) for batch in batches)
    assert padded < 1.1 * sum(LENGTHS)


def test_batches_do_not_come_in_order_of_length():
    longest = [
        max(LENGTHS[row] for row in batch) for batch in length_buckets(LENGTHS, batch_tokens=256, seed=0, epoch=0)
    ]
    assert longest != sorted(longest)


def test_no_rows_make_no_batches():
    assert cut_batches([], [], batch_tokens=8) == []


def test_row_longer_than_a_batch_is_refused():
    with pytest.raises(ValueError, match="a batch of 8 tokens can't hold row 1 of 9 tokens"):
        cut_batches([0, 1], [3, 9], batch_tokens=8)
