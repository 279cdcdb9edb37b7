"""What is said of a trained model: answers in the split's order, reports worked out by hand, pictures that repeat."""

import numpy as np
import pytest
import torch
from sklearn.metrics import precision_recall_fscore_support

from models.config import EncoderConfig
from models.heads import TextClassifier, TokenTagger
from pipeline.data.examples import Examples
from pipeline.evaluation import (
    Answers,
    answer,
    confusions,
    evaluation_document,
    label_report,
    predict,
    sample_logits,
    threshold_metrics,
)
from pipeline.pictures import MOST_LABELS, draw_confusion, draw_reliability

ENCODER = EncoderConfig(vocab_size=20, max_len=12, dim=8, num_layers=1, num_heads=2, hidden_dim=16)


def made_rows(seed=0, rows=23):
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 20, rng.integers(2, 12)) for _ in range(rows)]


def made_examples(rows, targets, *, per_token):
    return Examples(
        ids=np.concatenate(rows).astype(np.int32),
        starts=np.cumsum([0, *map(len, rows)]),
        targets=targets,
        per_token=per_token,
        truncated=0,
    )


def made_answers(seed=0, rows=200, labels=4):
    rng = np.random.default_rng(seed)
    expected = rng.integers(0, labels, rows)
    given = np.where(rng.random(rows) < 0.7, expected, rng.integers(0, labels, rows))
    confidence = rng.uniform(1 / labels, 1, rows)
    return Answers(given=given, expected=expected, confidence=confidence, raw_confidence=confidence**2)


def test_classifier_answers_stand_in_the_order_of_the_split():
    torch.manual_seed(0)
    model = TextClassifier(ENCODER, pooling="mean", num_labels=3).eval()
    rows = made_rows()
    examples = made_examples(rows, np.arange(23) % 3, per_token=False)
    with torch.inference_mode():
        alone = torch.cat([model(torch.tensor(row)[None], torch.ones(1, len(row), dtype=torch.int64)) for row in rows])
    given = alone.argmax(1).numpy()
    assert predict(model, examples, batch_tokens=24).tolist() == given.tolist()
    answers = answer(model, examples, temperature=0.5, batch_tokens=24)
    assert answers.given.tolist() == given.tolist()
    assert answers.expected.tolist() == examples.targets.tolist()
    torch.testing.assert_close(torch.from_numpy(answers.confidence), (alone.double() / 0.5).softmax(1).amax(1))
    torch.testing.assert_close(torch.from_numpy(answers.raw_confidence), alone.double().softmax(1).amax(1))
    logits, expected = sample_logits(model, examples, num_labels=3, batch_tokens=24)
    assert (logits.shape, sorted(expected)) == ((23, 3), sorted(examples.targets))


def test_tagger_answers_stand_in_the_order_of_the_words():
    torch.manual_seed(0)
    model = TokenTagger(ENCODER, num_labels=3).eval()
    rows = made_rows()
    # Every other token begins a word.
    targets = [np.where(np.arange(len(row)) % 2 == 1, row % 3, -100) for row in rows]
    examples = made_examples(rows, np.concatenate(targets).astype(np.int32), per_token=True)
    wanted = []
    with torch.inference_mode():
        for row in rows:
            logits = model(torch.tensor(row)[None], torch.ones(1, len(row), dtype=torch.int64))[0]
            wanted += logits[1::2].argmax(1).tolist()
    assert predict(model, examples, batch_tokens=24).tolist() == wanted
    answers = answer(model, examples, temperature=1.0, batch_tokens=24)
    assert answers.expected.tolist() == [target for row in targets for target in row if target != -100]


def test_label_report_is_scikit_learns():
    answers = made_answers()
    report = label_report(answers, list("abcd"))
    wanted = precision_recall_fscore_support(answers.expected, answers.given)
    for name, values in zip(("precision", "recall", "f1", "expected"), wanted, strict=True):
        assert [row[name] for row in report] == pytest.approx(list(values), abs=1e-6)


def test_a_label_that_nobody_names_has_no_figures():
    answers = Answers(
        given=np.array([0]), expected=np.array([0]), confidence=np.array([1.0]), raw_confidence=np.array([1.0])
    )
    assert label_report(answers, ["a", "b"])[1] == {
        **{"label": "b", "precision": None, "recall": None, "f1": None},
        **{"expected": 0, "given": 0},
    }


def test_confusions_are_sorted_by_how_often():
    given, expected = np.array([1, 1, 2, 0, 1]), np.array([0, 0, 0, 0, 2])
    answers = Answers(given=given, expected=expected, confidence=np.ones(5), raw_confidence=np.ones(5))
    assert confusions(answers, ["a", "b", "c"]) == [
        {"expected": "a", "given": "b", "count": 2},
        {"expected": "a", "given": "c", "count": 1},
        {"expected": "c", "given": "b", "count": 1},
    ]


def test_threshold_metrics_by_hand():
    answers = Answers(
        given=np.array([0, 1, 1]),
        expected=np.array([0, 0, 1]),
        confidence=np.array([0.9, 0.3, 0.8]),
        raw_confidence=np.ones(3),
    )
    assert threshold_metrics(answers, np.array([0.2, 0.6]), 0.5) == {
        "answered": pytest.approx(2 / 3),
        "accuracy_answered": 1.0,
        "none_rejected": 0.5,
        "none_rows": 2,
    }
    assert threshold_metrics(answers, np.empty(0), 1.0) == {"answered": 0.0}


@pytest.mark.parametrize(("labels", "names"), [(4, ["a$b", "許諾", "c" * 80, "d"]), (90, None)], ids=["few", "many"])
def test_pictures_are_png_and_repeat(tmp_path, labels, names):
    answers = made_answers(labels=labels)
    names = names or [f"label {index}" for index in range(labels)]
    assert (labels > MOST_LABELS) == (labels == 90)
    for name in ("one", "two"):
        draw_confusion(tmp_path / f"{name}-confusion.png", answers, names)
        draw_reliability(tmp_path / f"{name}-reliability.png", answers, temperature=0.7)
    for picture in ("confusion", "reliability"):
        one, two = ((tmp_path / f"{name}-{picture}.png").read_bytes() for name in ("one", "two"))
        assert one == two
        assert one.startswith(b"\x89PNG")
        assert b"Software" not in one


def test_the_document_has_bins_before_and_after():
    document = evaluation_document(made_answers(), list("abcd"), {"test": {"accuracy": 0.5}}, {})
    assert set(document) == {"metrics", "labels", "confusions", "reliability", "pictures"}
    for bins in document["reliability"].values():
        assert sum(row["share"] for row in bins) == pytest.approx(1, abs=1e-5)
