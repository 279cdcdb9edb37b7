"""Batch scoring: one answer a row, in order, in every format; killed and resumed; never a part under the name."""

import csv
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import pipeline.predict
from export.artifact.load import open_artifact, open_model
from pipeline.cli import cli
from pipeline.lock import LockedError, locked
from pipeline.predict import predict_file
from pipeline.run import ROOT

TEXTS = ["Licensed under the MIT licence", "", "a \u2581 b\0c", "Apache " * 200, 'with "quotes", and\na line', "GPL"]


def write_input(folder: Path, suffix: str) -> Path:
    path = folder / f"input{suffix}"
    rows = [{"id": str(number), "text": text} for number, text in enumerate(TEXTS)]
    if suffix == ".csv":
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, ["id", "text"])
            writer.writeheader()
            writer.writerows(rows)
    elif suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def read_output(path: Path) -> list[dict]:
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t" if path.suffix == ".tsv" else ","))
    for row in rows:
        row["line"], row["probability"] = int(row["line"]), float(row["probability"])
        row["dropped"], row["error"] = int(row["dropped"]), row["error"] or None
        row["predicted_label"] = row["predicted_label"] or None
    return rows


@pytest.fixture
def wanted(artifact):
    model = open_model(open_artifact(artifact), "onnxruntime")
    return [model.predict([text])[0] for text in TEXTS]


@pytest.mark.parametrize("source", [".csv", ".jsonl", ".parquet"])
@pytest.mark.parametrize("output", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_every_row_is_answered_in_order(tmp_path, artifact, wanted, source, output):
    target = tmp_path / f"answers{output}"
    scored = predict_file(artifact, write_input(tmp_path, source), target, keep=("id",), show=False)
    assert (scored.rows, scored.bad, scored.resumed) == (len(TEXTS), 0, 0)
    rows = read_output(target)
    assert list(rows[0]) == ["line", "id", "text", "predicted_label", "probability", "dropped", "error"]
    assert [row["id"] for row in rows] == [str(number) for number in range(len(TEXTS))]
    assert [row["text"] for row in rows] == TEXTS
    assert [row["predicted_label"] for row in rows] == [answer.label for answer in wanted]
    # Company is another order of sums.
    assert [row["probability"] for row in rows] == pytest.approx([a.probability for a in wanted], abs=1e-5)
    assert [row["dropped"] for row in rows] == [answer.dropped for answer in wanted]
    assert os.listdir(tmp_path).count(f".answers{output}.partial") == 0


def test_bad_rows_keep_their_place_and_say_why(tmp_path, artifact):
    source = tmp_path / "input.csv"
    source.write_bytes(b"text,id\ngood,1\nbad,2,3\n\xff,4\nlast,5\n")
    target = tmp_path / "answers.jsonl"
    assert predict_file(artifact, source, target, max_bad_share=0.5, show=False).bad == 2
    rows = read_output(target)
    assert [row["line"] for row in rows] == [2, 3, 4, 5]
    assert [row["error"] is None for row in rows] == [True, False, False, True]
    assert "UTF-8" in rows[2]["error"]
    assert (rows[1]["predicted_label"], rows[1]["text"]) == (None, None)


def test_too_many_bad_rows_are_refused_and_nothing_is_left(tmp_path, artifact):
    source = tmp_path / "input.csv"
    source.write_text("text,id\ngood,1\nbad,2,3\n")
    result = CliRunner().invoke(
        cli, ["predict", str(artifact), "--input", str(source), "--output", str(tmp_path / "answers.csv")]
    )
    assert result.exit_code == 2
    assert "1 of the 2 rows of input.csv can't be answered; --max-bad-share allows 1.00%" in result.stderr
    assert "line 3: " in result.stderr
    assert os.listdir(tmp_path) == ["input.csv"]


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [
        (["--input", "in.csv"], "--input and --output go together", 2),
        (["--input", "in.csv", "--output", "out.csv", "text"], "--input and --output go together", 2),
        (["--input", "none.csv", "--output", "out.csv"], "none.csv", 2),
        (["--input", "in.csv", "--output", "out.xlsx"], "must end in one of .csv, .tsv, .jsonl, .parquet", 2),
        (["--input", "in.xls", "--output", "out.csv"], "must end in one of", 2),
        (["--input", "in.csv", "--output", "there.csv"], "there.csv exists and is not replaced", 2),
        (["--input", "in.csv", "--output", "in.csv", "--overwrite"], "in.csv is the input, which is never replaced", 2),
        (["--input", "in.csv", "--output", "folder.csv"], "folder.csv must be a file; it is a folder", 2),
        (["--input", "in.csv", "--output", "out.csv", "--max-bad-share", "nan"], "--max-bad-share", 2),
        (["--input", "in.csv", "--output", "nowhere/out.csv"], "nowhere is not a folder. Make it first.", 2),
        (["--input", "in.csv", "--output", "out.csv", "--text", "body"], "has no column 'body'", 2),
        (["--input", "in.csv", "--output", "out.csv", "--keep", "uid"], "has no column 'uid' to keep", 2),
        (["--input", "own.csv", "--output", "out.csv", "--keep", "error"], "beside the output's own column", 2),
        (["--input", "empty.csv", "--output", "out.csv"], "empty.csv is empty", 2),
        (["--input", "header.csv", "--output", "out.csv"], "header.csv has no rows", 2),
    ],
)
def test_what_is_asked_wrongly_is_a_sentence(tmp_path, monkeypatch, artifact, arguments, said, code):
    monkeypatch.chdir(tmp_path)
    for name, content in {
        "in.csv": "text\none\n",
        "in.xls": "?",
        "own.csv": "text,error\none,two\n",
        "empty.csv": "",
        "header.csv": "text\n",
        "there.csv": "precious",
    }.items():
        Path(name).write_text(content)
    Path("folder.csv").mkdir()
    before = sorted(os.listdir())
    result = CliRunner().invoke(cli, ["predict", str(artifact), *arguments])
    assert (result.exit_code, said in result.stderr) == (code, True), result.stderr
    assert sorted(os.listdir()) == before
    assert Path("there.csv").read_text() == "precious"


def test_overwrite_replaces(tmp_path, artifact):
    source, target = write_input(tmp_path, ".csv"), tmp_path / "answers.csv"
    target.write_text("old")
    predict_file(artifact, source, target, overwrite=True, show=False)
    assert len(read_output(target)) == len(TEXTS)


def test_an_interrupted_scoring_goes_on(tmp_path, artifact, monkeypatch):
    source = tmp_path / "input.csv"
    source.write_text("text\n" + "".join(f"text {number}\n" for number in range(10)))
    monkeypatch.setattr(pipeline.predict, "CHUNK_ROWS", 3)
    whole = tmp_path / "whole.jsonl"
    predict_file(artifact, source, whole, show=False)

    chunks = []
    answer_chunk = pipeline.predict._answer_chunk

    def failing(chunk, *rest):
        if len(chunks) == 2:
            raise KeyboardInterrupt
        chunks.append(len(chunk))
        return answer_chunk(chunk, *rest)

    target = tmp_path / "answers.jsonl"
    monkeypatch.setattr(pipeline.predict, "_answer_chunk", failing)
    with pytest.raises(KeyboardInterrupt):
        predict_file(artifact, source, target, show=False)
    assert not target.exists()
    # A torn line behind the last note, as a kill in the middle of a write leaves it.
    with (tmp_path / ".answers.jsonl.partial" / "answers.jsonl").open("a") as file:
        file.write('{"line": 8, "te')
    monkeypatch.setattr(pipeline.predict, "_answer_chunk", answer_chunk)
    assert predict_file(artifact, source, target, show=False).resumed == 6
    assert target.read_bytes() == whole.read_bytes()
    assert not (tmp_path / ".answers.jsonl.partial").exists()


def interrupt(artifact, source, target, monkeypatch):
    """Answer all rows of a file, two a chunk, and be interrupted before the output is written."""
    monkeypatch.setattr(pipeline.predict, "CHUNK_ROWS", 2)
    monkeypatch.setattr(pipeline.predict, "_refuse_bad", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        predict_file(artifact, source, target, show=False)
    monkeypatch.undo()


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("answers.jsonl", '"text": "one"', '"text": "two"'),
        ("answers.jsonl", '"text"', '"\0\0\0\0"'),
        ("state.json", '"bytes":', '"bytes":-5,"b":'),
        ("state.json", '"bytes":', '"bytes":"x","b":'),
        ("state.json", '"sha256":"', '"sha256":"0'),
        ("state.json", "{", "["),
    ],
)
def test_damaged_work_is_done_anew(tmp_path, artifact, monkeypatch, file, old, new):
    source, target = tmp_path / "input.csv", tmp_path / "answers.jsonl"
    source.write_text("text\n" + "one\n" * 6)
    interrupt(artifact, source, target, monkeypatch)
    damaged = tmp_path / ".answers.jsonl.partial" / file
    assert old in damaged.read_text()
    damaged.write_text(damaged.read_text().replace(old, new, 1))
    scored = predict_file(artifact, source, target, show=False)
    assert (scored.rows, scored.resumed) == (6, 0)
    assert [row["text"] for row in read_output(target)] == ["one"] * 6


def test_an_input_that_changes_is_refused_and_nothing_of_it_is_kept(tmp_path, artifact, monkeypatch):
    source, target = tmp_path / "input.csv", tmp_path / "answers.jsonl"
    source.write_text("text\n" + "one\n" * 6)
    monkeypatch.setattr(pipeline.predict, "CHUNK_ROWS", 2)
    answer_chunk = pipeline.predict._answer_chunk

    def changing(*rest):
        with source.open("a") as file:
            file.write("two\n")
        return answer_chunk(*rest)

    monkeypatch.setattr(pipeline.predict, "_answer_chunk", changing)
    with pytest.raises(ValueError, match=r"input\.csv was changed while it was read\. Run again\."):
        predict_file(artifact, source, target, show=False)
    assert os.listdir(tmp_path) == ["input.csv"]


@pytest.mark.parametrize("output", [".csv", ".tsv"])
@pytest.mark.parametrize("text", ["a\rb", "c\nd", "e\r\nf", "\r", 'g"h', "i\tj", "k,l"])
def test_every_cell_comes_back(tmp_path, artifact, output, text):
    source, target = tmp_path / "input.jsonl", tmp_path / f"answers{output}"
    source.write_text(json.dumps({"text": text, "note": text}) + "\n")
    predict_file(artifact, source, target, text="text", keep=("note",), show=False)
    assert b"\r\n" not in target.read_bytes().replace(text.encode(), b"")
    (row,) = read_output(target)
    assert (row["text"], row["note"]) == (text, text)
    # Ferry reads what it wrote.
    again = tmp_path / "again.jsonl"
    predict_file(artifact, target, again, text="text", show=False)
    assert [row["text"] for row in read_output(again)] == [text]


def test_a_link_stays_and_what_it_names_is_written(tmp_path, artifact):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link.csv").symlink_to(tmp_path / "elsewhere" / "real.csv")
    predict_file(artifact, write_input(tmp_path, ".csv"), tmp_path / "link.csv", show=False)
    assert (tmp_path / "link.csv").is_symlink()
    assert os.listdir(tmp_path / "elsewhere") == ["real.csv"]
    assert len(read_output(tmp_path / "elsewhere" / "real.csv")) == len(TEXTS)


def test_the_longest_name(tmp_path, artifact):
    target = tmp_path / f"{'x' * 251}.csv"
    predict_file(artifact, write_input(tmp_path, ".csv"), target, show=False)
    assert sorted(os.listdir(tmp_path)) == ["input.csv", target.name]


def test_one_process_an_output(tmp_path, artifact):
    source, target = write_input(tmp_path, ".csv"), tmp_path / "answers.csv"
    with (
        locked(tmp_path / ".answers.csv.partial"),
        pytest.raises(LockedError, match=r"process \d+ is writing .*answers\.csv\. .*name another --output\."),
    ):
        predict_file(artifact, source, target, show=False)


def test_another_input_begins_anew(tmp_path, artifact, monkeypatch):
    source, target = tmp_path / "input.csv", tmp_path / "answers.jsonl"
    source.write_text("text\n" + "one\n" * 6)
    interrupt(artifact, source, target, monkeypatch)
    source.write_text("text\ntwo\n")
    assert predict_file(artifact, source, target, show=False).resumed == 0
    assert [row["text"] for row in read_output(target)] == ["two"]


def test_a_killed_process_leaves_no_output_and_its_work_is_used(tmp_path, artifact):
    source, target = tmp_path / "input.csv", tmp_path / "answers.csv"
    source.write_text("text\n" + "".join(f"a text of licence number {number}\n" for number in range(20_000)))
    arguments = ["predict", str(artifact), "--input", str(source), "--output", str(target)]
    command = [sys.executable, "-c", "from pipeline.cli import main; main()", *arguments]
    state = tmp_path / ".answers.csv.partial" / "state.json"
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL) as process:
        while not state.exists():
            assert process.poll() is None
        process.send_signal(signal.SIGKILL)
    assert not target.exists()
    whole = (state.parent / "answers.jsonl").read_bytes()[: json.loads(state.read_text())["bytes"]]
    done = whole.count(b"\n")
    assert 0 < done < 20_000
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (0, f"predict: {target} holds 20,000 rows\n"), result.stderr
    assert f"predict: going on behind row {done:,}" in result.stderr
    assert [row["line"] for row in read_output(target)] == list(range(2, 20_002))
