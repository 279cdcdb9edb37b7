"""Tagging: spans that were cut off count as missed, and tags without spans are judged by accuracy."""

import numpy as np
import pytest
import torch

from export.tokenizer import Tokenizer, train_tokenizer
from pipeline.data.dataset import Split
from pipeline.tasks import TASKS

TAGS = ["O", "B-song", "I-song"]
SENTENCES = [["play", "yellow", "submarine"], ["stop"], ["play", "a", "very", "long", "song", "name", "now"]]
TARGETS = [np.array([0, 1, 2]), np.array([0]), np.array([0, 0, 0, 0, 1, 2, 0])]


def tagging(labels=TAGS):
    return TASKS["token-classification"](labels=labels, label_smoothing=0.0, class_weights=None)


@pytest.fixture(scope="module")
def tokenizer():
    # Every word is one piece, and a sentence may have five.
    words = [word for sentence in SENTENCES for word in sentence]
    return Tokenizer(train_tokenizer([" ".join(words * 3)] * 50, vocab_size=330), max_length=7)


def test_right_answers_score_one_where_all_was_read(tokenizer):
    split = Split(SENTENCES[:2], TARGETS[:2])
    examples = TASKS["token-classification"].encode(tokenizer, split)
    assert tagging().score(np.array([0, 1, 2, 0]), split, examples) == {
        **{"accuracy": 1.0, "macro_f1": 1.0},
        "span_f1": 1.0,
    }


def test_a_span_that_was_cut_counts_as_missed(tokenizer):
    split = Split(SENTENCES, TARGETS)
    examples = TASKS["token-classification"].encode(tokenizer, split)
    read = [len(tokenizer.encode_words(" ".join(words)).firsts) for words in SENTENCES]
    assert read == [3, 1, 5]
    metrics = tagging().score(np.array([0, 1, 2, 0, 0, 0, 0, 0, 1]), split, examples)
    assert metrics["accuracy"] == 1.0
    # Found: one whole song and one cut short. Expected: two. Right: one.
    assert metrics["span_f1"] == pytest.approx(2 * 1 / (2 + 2))


@pytest.mark.parametrize(
    ("labels", "metric"),
    [
        (TAGS, "span_f1"),
        (["NOUN", "VERB"], "accuracy"),
        (["O", "S-x", "E-x"], "accuracy"),
        (["O", "B-x", "E-x", "S-x"], "span_f1"),
        (["B-x", "I-x"], "span_f1"),
    ],
)
def test_the_checkpoint_is_chosen_by_what_the_tags_are(labels, metric):
    assert tagging(labels).best_metric == metric


def test_tokens_that_begin_no_word_have_no_loss():
    logits = torch.tensor([[[2.0, 0.0, 0.0], [9.0, 0.0, 0.0]]])
    both = tagging().loss(logits, torch.tensor([[0, -100]]))
    torch.testing.assert_close(both, tagging().loss(logits[:, :1], torch.tensor([[0]])))
