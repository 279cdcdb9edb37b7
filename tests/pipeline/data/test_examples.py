"""Encoded splits: ids as the tokenizer gives them, targets where they belong, and the test split's file."""

import numpy as np
import pytest

from export.contract import NO_ANSWER
from export.tokenizer import Tokenizer, train_tokenizer
from pipeline.data.dataset import Split
from pipeline.data.examples import encode_sentences, encode_texts
from pipeline.data.test_split import read_test_split, write_test_split

TEXTS = ["play some jazz", "", "what is the weather in Reykjavík tomorrow at noon"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer(train_tokenizer(TEXTS * 3, vocab_size=300), max_length=12)


def test_texts(tokenizer):
    examples = encode_texts(tokenizer, TEXTS, np.array([2, 0, 1]))
    encodings = tokenizer.encode_batch(TEXTS)
    assert len(examples) == 3
    assert examples.lengths.tolist() == [len(encoding.ids) for encoding in encodings]
    assert examples.truncated == sum(encoding.dropped > 0 for encoding in encodings) == 1
    input_ids, attention_mask, targets = examples.batch([2, 1])
    assert input_ids[0].tolist() == encodings[2].ids
    assert input_ids[1].tolist() == [2, 3] + [0] * 10
    assert attention_mask.tolist() == [[1] * 12, [1, 1] + [0] * 10]
    assert targets.tolist() == [1, 0]
    assert {tensor.dtype for tensor in (input_ids, attention_mask, targets)} == {np.dtype(np.int64)}


def test_sentences(tokenizer):
    sentences = [text.split() for text in TEXTS]
    labels = [np.arange(len(words)) for words in sentences]
    examples = encode_sentences(tokenizer, sentences, labels)
    assert examples.truncated == 1
    input_ids, _, targets = examples.batch([0, 1, 2])
    for row, text in enumerate(TEXTS):
        encoding = tokenizer.encode_words(text)
        assert input_ids[row, : len(encoding.ids)].tolist() == encoding.ids
        assert targets[row, encoding.firsts].tolist() == list(range(len(encoding.firsts)))
    # One target for each word that was read, and none besides.
    read = [len(tokenizer.encode_words(text).firsts) for text in TEXTS]
    assert (targets != NO_ANSWER).sum(axis=1).tolist() == read
    assert read[2] < len(sentences[2])


def test_nothing_to_encode(tokenizer):
    assert len(encode_texts(tokenizer, [], np.empty(0, np.int64))) == 0
    assert len(encode_sentences(tokenizer, [], [])) == 0


def test_the_test_split_comes_back(tmp_path):
    texts = Split(["a", "", "c\0 \u2028 ü"], np.array([1, 0, 1]))
    write_test_split(tmp_path / "texts", texts, per_token=False)
    back = read_test_split(tmp_path / "texts")
    assert back.inputs == texts.inputs
    assert back.targets.tolist() == [1, 0, 1]

    sentences = Split([["a", "b"], ["c"]], [np.array([0, 1]), np.array([2])])
    write_test_split(tmp_path / "sentences", sentences, per_token=True)
    back = read_test_split(tmp_path / "sentences")
    assert back.inputs == sentences.inputs
    assert [row.tolist() for row in back.targets] == [[0, 1], [2]]


def test_a_damaged_test_split_is_a_sentence(tmp_path):
    path = tmp_path / "test.parquet"
    path.write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(ValueError, match=r"test\.parquet can't be read: .*Train again\."):
        read_test_split(path)
