"""The linear baseline, on a small made data set."""

import re
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from pipeline.data import baseline
from pipeline.data.baseline_tagging import _features
from pipeline.data.dataset import Dataset, Split

pytest.importorskip("sklearn", reason="the baseline needs scikit-learn, a development dependency")


def made_dataset(test_labels: list[int]) -> Dataset:
    """Texts that their first word decides; the given labels stand in the test split."""
    words = ["alpha", "beta", "gamma"]
    train = [(f"{word} common text {i % 5}", label) for label, word in enumerate(words) for i in range(20)]
    held_out = [(f"{word} common words", label) for label, word in enumerate(words)]
    texts, labels = zip(*train, strict=True)
    held_texts, held_labels = zip(*held_out, strict=True)
    return Dataset(
        name="made",
        labels=words,
        train=Split(list(texts), np.array(labels)),
        validation=Split(list(held_texts), np.array(held_labels)),
        test=Split(list(held_texts), np.array(test_labels)),
        sha256="0" * 64,
        licence="CC0-1.0",
        attribution="nobody",
        origin="here",
    )


def test_learns_and_scores_the_test_split() -> None:
    result = baseline.run_baseline(made_dataset([0, 1, 0]), costs=(1.0, 3.0), jobs=1)
    assert len(result.validation) == 4
    assert result.validation[result.best] == baseline.Score(1.0, 1.0)
    assert result.test.accuracy == pytest.approx(2 / 3)
    assert result.test.macro_f1 == pytest.approx((2 / 3 + 1 + 0) / 3)


def test_test_labels_do_not_choose() -> None:
    """Candidates are ranked by validation, so other test labels change neither the ranking nor the choice."""
    right, wrong = (baseline.run_baseline(made_dataset(labels), jobs=1) for labels in ([0, 1, 2], [1, 2, 0]))
    assert (right.validation, right.best) == (wrong.validation, wrong.best)
    assert (right.test.accuracy, wrong.test.accuracy) == (1.0, 0.0)


def test_the_last_number_is_the_test_accuracy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    score = baseline.Score(0.9, 0.8)
    result = baseline.Baseline(
        {("word 1-2-grams", 1.0): baseline.Score(0.5, 0.4), ("character 2-5-grams", 3.0): score},
        ("character 2-5-grams", 3.0),
        baseline.Score(0.90123, 0.7),
    )
    monkeypatch.setattr(baseline, "run_baseline", lambda dataset: result)
    assert baseline.main([]) == 0
    output = capsys.readouterr().out
    assert output == (
        "features                 C  validation accuracy  macro-F1\n"
        "word 1-2-grams         1.0                50.00     40.00\n"
        "character 2-5-grams    3.0                90.00     80.00  <- best\n"
        "test macro-F1 70.00\n"
        "test accuracy 90.12\n"
    )
    assert re.findall(r"[\d.]+", output)[-1] == "90.12"


def test_without_scikit_learn(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.feature_extraction.text", None)
    assert baseline.main([]) == 2
    assert capsys.readouterr().err == (
        "The baseline needs scikit-learn, which is not installed. Run: pip install scikit-learn\n"
    )


def test_unknown_data_set(capsys: pytest.CaptureFixture[str]) -> None:
    assert baseline.main(["--data", "nope"]) == 2
    assert capsys.readouterr().err == "unknown data set 'nope'. Choose one of: licences.\n"


def test_own_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    # Processes of their own take longer to start than these fits.
    monkeypatch.setattr(baseline, "run_baseline", partial(baseline.run_baseline, jobs=1))
    for name, rows in (("train", 40), ("valid", 8), ("test", 6)):
        lines = [f"{'ab'[row % 2]},{('alpha', 'beta')[row % 2]} text {row}" for row in range(rows)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["kind,words", *lines]))
    files = {name: str(tmp_path / f"{name}.csv") for name in ("train", "valid", "test")}
    split = ["--data", files["train"], "--validation", files["valid"], "--test", files["test"]]
    assert baseline.main([*split, "--text", "words", "--label", "kind"]) == 0
    output = capsys.readouterr()
    assert output.out.endswith("test macro-F1 100.00\ntest accuracy 100.00\n")
    assert "validation rows with a text that is also in train" in output.err
    assert baseline.main(split) == 2
    assert capsys.readouterr().err.startswith(f"{files['train']}: can't tell which column is the text and which")
    assert baseline.main(["--data", str(tmp_path / "none.csv")]) == 2
    assert capsys.readouterr().err.startswith(f"{tmp_path / 'none.csv'} does not exist.")


def test_tagged_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cities = ["Rome", "Oslo", "Lima", "Bonn"]
    sentences = [f"go\tO\nto\tO\n{cities[n % 4]}\tB-place\nHall\tI-place\nnow{n}\tO\n" for n in range(60)]
    (tmp_path / "a.conll").write_text("\n".join(sentences))
    assert baseline.main(["--data", str(tmp_path / "a.conll")]) == 0
    output = capsys.readouterr().out
    assert output.splitlines()[0] == "   C  validation span F1  word accuracy"
    assert output.endswith("test word accuracy 100.00\ntest span F1 100.00\n")
    (tmp_path / "b.conll").write_text("\n".join(sentences).replace("B-place", "N").replace("I-place", "H"))
    assert baseline.main(["--data", str(tmp_path / "b.conll")]) == 0
    assert capsys.readouterr().out.endswith("\ntest word accuracy 100.00\n")


def test_the_window_of_a_word() -> None:
    features = _features(["<s>", "<s>", "McDonald", "'s", "99"])
    assert {"word=McDonald", "shape=XxXx", "-1=<s>", "1='s", "2=99", "end=ald", "start=mcdo", "0,1=mcdonald 's"} <= set(
        features
    )
    assert len(set(features)) == len(features)
