"""A person's own file carried all the way by one command each, and what is told on the way."""

import csv
import json
import os
import random
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import pipeline.train
from export.artifact.check import check_artifact
from export.artifact.load import open_artifact, open_model, softmax
from export.tokenizer import pad_batch, train_tokenizer
from pipeline.calibration import choose_threshold
from pipeline.cli import cli
from tests.conftest import conll_rows
from tests.questions import QUICK_OPTIONS

CONFIG = """
name = "never used"
[tokenizer]
vocab_size = 4000
[model]
max_len = 16
dim = 16
num_layers = 1
num_heads = 2
hidden_dim = 32
[training]
threads = 1
epochs = 3
batch_tokens = 256
learning_rate = 1e-2
warmup_steps = 5
"""
WORDS = {"fruit": ["apple", "pear", "plum"], "tool": ["hammer", "saw", "drill"], "other": ["", " "]}


def write_csv(path: Path, rows: int, *, seed: int = 0, labels: tuple[str, ...] = ("fruit", "tool")) -> Path:
    generator = random.Random(seed)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "message", "intent"])
        # What is "other" names nothing, so that no class is likely.
        for number in range(rows):
            label = labels[number % len(labels)]
            text = f"my {generator.choice(WORDS[label])} number {generator.randint(0, 999)}"
            writer.writerow([number, text, label])
    return path


@pytest.fixture
def ferry(monkeypatch, tmp_path):
    """Run a command in an empty folder that holds a configuration, and return its result."""
    monkeypatch.chdir(tmp_path)
    Path("c.toml").write_text(CONFIG.replace("never used", "never-used"))

    def run(*arguments, code=0):
        result = CliRunner().invoke(cli, [str(argument) for argument in arguments])
        assert result.exit_code == code, result.output
        return result

    return run


def train_longer():
    Path("c.toml").write_text(Path("c.toml").read_text().replace("epochs = 3", "epochs = 12"))


def carry(ferry, *data):
    """Run all the stages and return what training said and the record of training."""
    said = ferry("train", "--config", "c.toml", "--run", "run", *data)
    ferry("export", "--run", "run")
    ferry("verify", "--run", "run", *QUICK_OPTIONS)
    ferry("package", "--run", "run")
    return said, json.loads(Path("run/train/train.json").read_text())


def test_a_spreadsheet_becomes_an_artifact(ferry, tmp_path):
    write_csv(Path("my mails 2026.csv"), 300)
    said, record = carry(ferry, "--data", "my mails 2026.csv")
    assert "data: guessed columns: the text is 'message', the label 'intent'." in said.stderr
    assert record["name"] == "my-mails-2026"
    artifact = Path("artifacts/my-mails-2026/1.0.0")
    manifest = check_artifact(artifact)
    assert manifest["metadata"]["labels"] == ["fruit", "tool"]
    assert manifest["data"]["rows"].keys() == {"train", "validation", "test"}
    assert sum(manifest["data"]["rows"].values()) == 300
    assert manifest["metrics"]["test"]["accuracy"] == 1.0
    (answer,) = open_model(open_artifact(artifact), "onnxruntime").predict(["my saw number 7"])
    assert answer.label == "tool"
    # Where the file lay is nobody's business.
    for path in [*artifact.iterdir(), Path("run/train/train.json")]:
        assert str(tmp_path).encode() not in path.read_bytes()
    again = ferry("train", "--config", "c.toml", "--run", "run", "--data", "my mails 2026.csv")
    assert again.stdout == "train: run/train is current\n"
    beside = f"{artifact.parent.name}-1.0.0.tar.gz beside it"
    assert ferry("package", "--run", "run").stdout == f"package: {artifact} is already packaged, with {beside}\n"


def test_data_that_is_learned_by_heart_is_packaged(ferry):
    """Every answer right and sure: temperature and threshold stay ones that goldens can show."""
    train_longer()
    write_csv(Path("easy.csv"), 240)
    carry(ferry, "--data", "easy.csv")
    manifest = check_artifact(Path("artifacts/easy/1.0.0"))
    assert manifest["metadata"]["threshold"] <= 0.5
    assert manifest["metadata"]["temperature"] > 0.3
    card = Path("artifacts/easy/1.0.0/README.md").read_text()
    answers = manifest["metrics"]["validation"]["answers"]
    assert f"were chosen on {answers} answers of the validation split" in card
    assert card.count("not stated") == 1


def test_changed_data_is_trained_again(ferry):
    write_csv(Path("a.csv"), 120)
    ferry("train", "--config", "c.toml", "--run", "run", "--data", "a.csv")
    write_csv(Path("a.csv"), 121)
    assert "is current" not in ferry("train", "--config", "c.toml", "--run", "run", "--data", "a.csv").stdout


def test_fifty_rows_in_all(ferry):
    write_csv(Path("few.csv"), 50)
    _, record = carry(ferry, "--data", "few.csv")
    assert sum(record["data"]["rows"].values()) == 50
    assert all(rows >= 1 for rows in record["data"]["rows"].values())
    check_artifact(Path("artifacts/few/1.0.0"))


def test_bad_rows_are_told_recorded_and_left_out(ferry):
    path = write_csv(Path("a.csv"), 200)
    with path.open("a") as file:
        file.write("7,broken\n")
    said, record = carry(ferry, "--data", "a.csv", "--name", "named")
    assert "a.csv, line 202: " in said.stderr
    assert record["data"]["rows_read"] == 201
    assert len(record["data"]["bad_rows"]) == 1
    assert record["data"]["bad_rows"][0].startswith("a.csv, line 202: ")
    assert Path("artifacts/named/1.0.0").is_dir()


def test_too_many_bad_rows_are_refused_and_nothing_is_left(ferry):
    path = write_csv(Path("a.csv"), 50)
    with path.open("a") as file:
        file.write("7,broken\n")
    result = ferry("train", "--config", "c.toml", "--run", "run", "--data", "a.csv", code=2)
    assert "1 of the 51 rows of a.csv can't be used" in result.stderr
    assert sorted(os.listdir()) == ["a.csv", "c.toml"]
    ferry("train", "--config", "c.toml", "--run", "run", "--data", "a.csv", "--max-bad-share", "0.05")


def test_texts_that_fit_no_class_choose_the_threshold(ferry):
    train_longer()
    labels = ("fruit", "tool", "other")
    write_csv(Path("train.csv"), 300, labels=("fruit", "tool"))
    write_csv(Path("valid.csv"), 90, seed=1, labels=labels)
    write_csv(Path("test.csv"), 90, seed=2, labels=labels)
    splits = ("--data", "train.csv", "--validation", "valid.csv", "--test", "test.csv")
    _, record = carry(ferry, *splits, "--none-label", "other", "--name", "none")
    test = record["metrics"]["test"]
    assert (test["rows"], test["none_rows"]) == (60, 30)
    artifact = open_artifact(Path("artifacts/none/1.0.0"))
    assert artifact.labels == ["fruit", "tool"]
    # The same choice, made again from what the artifact says of the validation rows.
    with Path("valid.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    model = open_model(artifact, "torchscript")
    encodings = model.tokenizer.encode_batch(row["message"] for row in rows)
    probabilities = softmax(model.logits(*pad_batch(encodings)), artifact.metadata["temperature"])
    best, fits = probabilities.max(axis=1), np.array([row["intent"] != "other" for row in rows])
    correct = np.array(
        [artifact.labels[i] == row["intent"] for i, row in zip(probabilities.argmax(1), rows, strict=True)]
    )
    wanted = choose_threshold(best[fits], correct[fits], best[~fits], rejected_share=0.01)
    # Rounding may move a probability over a step of the threshold.
    assert artifact.metadata["threshold"] == pytest.approx(wanted, abs=2e-4)


def test_words_are_tagged(ferry):
    train_longer()
    Path("train.conll").write_text(conll_rows(300, seed=1))
    _, record = carry(ferry, "--data", "train.conll", "--name", "music")
    assert record["metrics"]["test"]["span_f1"] > 0.9
    artifact = open_artifact(Path("artifacts/music/1.0.0"))
    assert artifact.metadata["task"] == "token-classification"
    (answer,) = open_model(artifact, "torchscript").predict(["play some soft  rock in berlin"])
    assert [(word.word, word.label) for word in answer.words] == [
        *(("play", "O"), ("some", "O"), ("soft", "B-kind"), ("rock", "I-kind"), ("in", "O"), ("berlin", "B-place")),
    ]
    printed = ferry("predict", "artifacts/music/1.0.0", "play some jazz", "").stdout
    assert [line.split("\t")[:2] for line in printed.splitlines()] == [
        *(["play", "O"], ["some", "O"], ["jazz", "B-kind"], [""], [""]),
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--text", "body"], "data.text is for own files, so it needs data.train."),
        (["--data", "none.csv"], "none.csv"),
        (["--data", "a.csv", "--label", "class"], "has no column 'class' for the label"),
        (["--data", "a.csv", "--resume", "--restart"], "exclude each other"),
        (["--data", "a.csv", "--name", "a/b"], "name must be 1 to 100 letters"),
        (["--data", "a.csv", "--name", "x" * 300], "got 'xxxxxxxxxxxxxxxxxxxx' … of 300 characters"),
        (["--data", "a.csv", "--max-bad-share", "2"], "data.max_bad_share must lie in [0, 1)"),
    ],
)
def test_what_is_asked_wrongly_is_a_sentence_and_leaves_nothing(ferry, arguments, said):
    write_csv(Path("a.csv"), 50)
    result = ferry("train", "--config", "c.toml", "--run", "run", *arguments, code=2)
    assert said in result.stderr
    assert "Traceback" not in result.output
    assert sorted(os.listdir()) == ["a.csv", "c.toml"]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("mails.csv", "mails"),
        ("mails.csv.gz", "mails"),
        ("clinc/train.tsv", "clinc"),
        ("a b/Grüße & more.jsonl", "Gr-e-more"),
        ("許諾.csv", "own-data"),
        ("../.hidden/train.csv", "hidden"),
        (f"{'x' * 200}.csv", "x" * 100),
    ],
)
def test_the_artifact_is_called_after_the_data(path, name):
    from pipeline.config import DataConfig, artifact_name_problems, own_name

    assert own_name(DataConfig(train=(path,))) == name
    assert not artifact_name_problems(name, "the name")


def test_the_command_line_overrides_the_configuration(ferry):
    write_csv(Path("a.csv"), 200)
    Path("c.toml").write_text(Path("c.toml").read_text() + '\n[data]\ntrain = ["a.csv"]\nvalidation_share = 0.3\n')
    ferry("train", "--config", "c.toml", "--run", "run")
    record = json.loads(Path("run/train/train.json").read_text())
    assert (record["name"], record["config"]["data"]["train"]) == ("never-used", ["a.csv"])
    assert 40 <= record["data"]["rows"]["validation"] <= 80
    ferry("train", "--config", "c.toml", "--run", "run", "--validation-share", "0.1")
    record = json.loads(Path("run/train/train.json").read_text())
    assert 8 <= record["data"]["rows"]["validation"] <= 32


def test_the_tokenizer_learns_from_a_bounded_number_of_texts(ferry, monkeypatch):
    write_csv(Path("a.csv"), 300)
    seen = []

    def counting(texts, **options):
        seen.extend(texts)
        return train_tokenizer(seen, **options)

    monkeypatch.setattr(pipeline.train, "train_tokenizer", counting)
    monkeypatch.setattr(pipeline.train, "_TOKENIZER_TEXTS", 40)
    ferry("train", "--config", "c.toml", "--run", "run", "--data", "a.csv")
    rows = json.loads(Path("run/train/train.json").read_text())["data"]["rows"]["train"]
    assert rows > 200
    # Evenly spaced, so a little less than the bound.
    assert 30 < len(seen) <= 40


def test_class_weights_are_trained_with(ferry):
    write_csv(Path("a.csv"), 120)
    weighted = Path("c.toml").read_text() + 'class_weights = "balanced"\n'
    Path("c.toml").write_text(weighted)
    with Path("a.csv").open("a") as file:
        file.write("".join(f"{number},my saw number {number},tool\n" for number in range(1000, 1200)))
    ferry("train", "--config", "c.toml", "--run", "weighted", "--data", "a.csv")
    Path("c.toml").write_text(weighted.replace("balanced", "none"))
    ferry("train", "--config", "c.toml", "--run", "same-data", "--data", "a.csv")
    one, other = (Path(run, "train", "model.safetensors").read_bytes() for run in ("weighted", "same-data"))
    assert one != other
    Path("c.toml").write_text(weighted.replace("balanced", "heavy"))
    result = ferry("train", "--config", "c.toml", "--run", "wrong", "--data", "a.csv", code=2)
    assert "training.class_weights must be one of none, balanced; got 'heavy'." in result.stderr
