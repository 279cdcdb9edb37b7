"""Cutting splits by hash: the laws that hold for every data set."""

import contextlib
import re

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.data.cut import TEST, TRAIN, VALIDATION, cut

SHARES = {VALIDATION: 0.1, TEST: 0.1}


def random_hashes(size: int, seed: int = 0) -> npt.NDArray[np.uint64]:
    return np.random.default_rng(seed).integers(0, 2**64, size, dtype=np.uint64)


def cut_single(
    hashes: npt.NDArray[np.uint64], labels: npt.NDArray[np.int64], **options: object
) -> npt.NDArray[np.int8]:
    """Every text has one label."""
    return cut(hashes, np.arange(len(hashes)), labels, shares=options.get("shares", SHARES))  # type: ignore[arg-type]


def test_shares_in_every_class() -> None:
    labels = np.arange(60_000) % 3
    places = cut_single(random_hashes(60_000), labels)
    for label in range(3):
        shares = np.bincount(places[labels == label], minlength=3) / 20_000
        # Five standard deviations of a binomial share: 5·sqrt(0.1·0.9 / 20,000) = 0.0106.
        assert shares == pytest.approx([0.8, 0.1, 0.1], abs=0.011)


def test_rows_that_are_added_move_no_other() -> None:
    hashes, labels = random_hashes(4000), np.arange(4000) % 4
    more = np.concatenate([random_hashes(4000, seed=1), hashes])
    before, after = cut_single(hashes, labels), cut_single(more, np.concatenate([labels + 4, labels]))
    assert np.array_equal(after[4000:], before)


def test_the_order_of_rows_does_not_matter() -> None:
    hashes, labels = random_hashes(300), np.arange(300) % 97
    order = np.random.default_rng(1).permutation(300)
    assert np.array_equal(cut_single(hashes[order], labels[order]), cut_single(hashes, labels)[order])


def test_the_test_split_does_not_depend_on_validation() -> None:
    hashes, labels = random_hashes(5000), np.zeros(5000, np.int64)
    both, alone = cut_single(hashes, labels), cut_single(hashes, labels, shares={TEST: 0.1})
    assert np.array_equal(both == TEST, alone == TEST)


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 5)), min_size=1, max_size=120),
    st.integers(0, 1000),
    st.sampled_from([{VALIDATION: 0.1}, {TEST: 0.5}, SHARES, {VALIDATION: 0.5, TEST: 0.3}]),
)
def test_guarantees(pairs: list[tuple[int, int]], seed: int, shares: dict[int, float]) -> None:
    """Whatever texts share labels: a class never leaves train, no split is empty, or there is a sentence."""
    unique = np.array(sorted(set(pairs)))
    used, texts = np.unique(unique[:, 0], return_inverse=True)
    labels = unique[:, 1]
    hashes = random_hashes(len(used), seed)
    if len(used) < len(set(labels.tolist())) + len(shares):
        # There may still be enough, as a text can have several classes.
        with contextlib.suppress(ValueError):
            cut(hashes, texts, labels, shares=shares)
        return
    places = cut(hashes, texts, labels, shares=shares)
    assert set(places.tolist()) <= {TRAIN, *shares}
    assert set(labels[places[texts] == TRAIN].tolist()) == set(labels.tolist())
    assert set(shares) <= set(places.tolist())


def test_every_class_of_enough_texts_is_in_every_split() -> None:
    labels = np.repeat(np.arange(500), 10)
    places = cut_single(random_hashes(5000), labels)
    for split in (VALIDATION, TEST):
        assert len(set(labels[places == split].tolist())) == 500
    assert np.bincount(labels[places == TRAIN]).min() >= 1


def test_one_text_a_class_stays_in_train() -> None:
    labels = np.concatenate([np.zeros(100, np.int64), np.arange(1, 51)])
    places = cut_single(random_hashes(150), labels)
    assert (places[100:] == TRAIN).all()


def test_three_texts_of_one_class_fill_three_splits() -> None:
    for seed in range(200):
        assert sorted(cut_single(random_hashes(3, seed), np.zeros(3, np.int64))) == [TRAIN, VALIDATION, TEST]


def test_too_few() -> None:
    message = (
        "2 different texts are too few to cut validation and test rows from, as every class keeps one to train on."
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        cut_single(random_hashes(2), np.array([0, 1]))
