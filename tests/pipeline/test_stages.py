import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import export.artifact.pack as export_pack
import pipeline.package
from export.artifact.goldens import make_goldens
from export.artifact.layout import ALL_FILES
from export.artifact.pack import write_artifact
from pipeline.export import export
from pipeline.package import NotProvenError, VersionTakenError, package
from pipeline.run import ROOT
from pipeline.train import train
from pipeline.verify import verify
from tests.questions import QUICK


@pytest.fixture
def run(tmp_path, small_run) -> Path:
    """A copy of the run that a test may change."""
    return Path(shutil.copytree(small_run, tmp_path / "run"))


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_each_stage_skips_what_is_current(small_run, small_config):
    before = contents(small_run)
    assert train(small_config, small_run, show=False).skipped
    assert export(small_run, show=False).skipped
    assert verify(small_run, QUICK, show=False).skipped
    assert contents(small_run) == before


def test_changed_configuration_trains_again_and_what_follows_is_stale(run, tmp_path, small_config):
    changed = tmp_path / "changed.toml"
    changed.write_text(small_config.read_text().replace("learning_rate = 3e-3", "learning_rate = 2e-3"))
    before = (run / "train" / "model.safetensors").read_bytes()
    assert not train(changed, run, show=False).skipped
    assert (run / "train" / "model.safetensors").read_bytes() != before
    with pytest.raises(ValueError, match="Run `ferry export"):
        verify(run, QUICK, show=False)
    with pytest.raises(NotProvenError, match="is not the file that was verified"):
        package(run, "1.0.0", tmp_path / "artifacts")


def test_same_configuration_gives_the_same_bytes(tmp_path, small_run, small_config):
    train(small_config, tmp_path / "again", show=False)
    for name in ("model.safetensors", "config.json", "tokenizer.model", "tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "again" / "train" / name).read_bytes() == (small_run / "train" / name).read_bytes()


def test_exports_from_two_folders_have_the_same_bytes(tmp_path, small_run):
    elsewhere = tmp_path / "another place"
    for room in ("models", "export", "pipeline"):
        shutil.copytree(ROOT / room, elsewhere / room, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(small_run / "train", elsewhere / "run" / "train")
    command = [sys.executable, "pipeline/export.py", "--run", str(elsewhere / "run")]
    subprocess.run(command, cwd=elsewhere, check=True, capture_output=True)
    for name in ("model.pt", "model.onnx", "model.pt2"):
        assert (elsewhere / "run" / "export" / name).read_bytes() == (small_run / "export" / name).read_bytes()


@pytest.mark.parametrize("stage", ["export", "verify", "package"])
def test_stage_without_the_one_before_says_what_to_run(tmp_path, stage):
    stages = {"export": export, "verify": verify, "package": lambda run: package(run, "1.0.0", tmp_path)}
    with pytest.raises(ValueError, match=r"holds no result of the stage train. Run `ferry train"):
        stages[stage](tmp_path / "none")


def test_damaged_checkpoint_is_not_exported(run):
    weights = run / "train" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    before = contents(run)
    with pytest.raises(ValueError, match=r"changed after the stage train: model\.safetensors"):
        export(run, show=False)
    assert contents(run) == before


def test_package_is_the_same_to_the_byte(tmp_path, small_run, artifact):
    again = package(small_run, "1.0.0", tmp_path / "artifacts")
    assert contents(again.folder) == contents(artifact)


def test_the_number_of_threads_does_not_show_in_the_bytes(tmp_path, small_run, artifact, monkeypatch):
    """A model this small is never spread over threads, so it is looked at what goldens are computed with."""
    threads = []

    def watched(*args, **kwargs):
        threads.append(torch.get_num_threads())
        return make_goldens(*args, **kwargs)

    monkeypatch.setattr(export_pack, "make_goldens", watched)
    torch.set_num_threads(2)
    try:
        again = package(small_run, "1.0.0", tmp_path / "artifacts")
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert threads == [1]
    assert contents(again.folder) == contents(artifact)


def test_goldens_leave_out_the_last_bits_of_float64(artifact):
    """Two runs of one model differ there, by where memory happens to lie."""

    def numbers(value):
        if isinstance(value, dict):
            value = list(value.values())
        if isinstance(value, list):
            return [number for part in value for number in numbers(part)]
        return [value] if isinstance(value, float) else []

    goldens = json.loads((artifact / "goldens.json").read_text())
    found = numbers(goldens["texts"]) + numbers(goldens["batches"])
    assert len(found) > 1000
    assert all(number == round(number, 7) for number in found)


def test_the_card_tells_what_the_proof_left_out(artifact):
    card = (artifact / "README.md").read_text("utf-8")
    assert "Inputs drawn at random: 0. Not run: aot-inductor (left out, as was asked)." in card


def test_second_package_is_skipped(small_run, artifact):
    before = {path: path.stat().st_mtime_ns for path in artifact.iterdir()}
    assert package(small_run, "1.0.0", artifact.parent.parent).skipped
    assert {path: path.stat().st_mtime_ns for path in artifact.iterdir()} == before


@pytest.mark.parametrize(
    ("version", "taken", "following"),
    [("1.0.0", [], "1.0.1"), ("1.0.9", ["1.0.10"], "1.0.11"), ("beta", [], "beta.1"), ("v2", [], "v3")],
)
def test_taken_version_is_left_and_the_next_is_named(tmp_path, small_run, version, taken, following):
    for name in [version, *taken]:
        (tmp_path / "small" / name).mkdir(parents=True)
        (tmp_path / "small" / name / "precious").write_text("kept")
    before = contents(tmp_path)
    with pytest.raises(VersionTakenError, match=f"give VERSION={following} to the same make"):
        package(small_run, version, tmp_path)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("version", ["", "a/b", "..", ".", "-x", "a b", "x" * 101])
def test_version_that_is_no_folder_name_is_refused(tmp_path, small_run, version):
    with pytest.raises(ValueError, match="the version must be 1 to 100 letters"):
        package(small_run, version, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", [*pipeline.package.SOURCES])
def test_file_that_was_not_verified_is_not_packaged(run, tmp_path, name):
    folder = run / pipeline.package.SOURCES[name]
    (folder / name).write_bytes((folder / name).read_bytes() + b" ")
    with pytest.raises((NotProvenError, ValueError), match=name):
        package(run, "1.0.0", tmp_path / "artifacts")
    assert not (tmp_path / "artifacts").exists()


def test_missing_and_failed_verification_are_refused(run, tmp_path):
    file = run / "verify" / "verification.json"
    document = json.loads(file.read_text())
    file.write_text(json.dumps({**document, "verdict": "failed"}))
    with pytest.raises(NotProvenError, match="verification failed"):
        package(run, "1.0.0", tmp_path / "artifacts")
    file.unlink()
    with pytest.raises(NotProvenError, match=r"was not verified\. Run `ferry verify"):
        package(run, "1.0.0", tmp_path / "artifacts")
    assert not (tmp_path / "artifacts").exists()


def test_package_that_fails_its_check_leaves_nothing(tmp_path, small_run, monkeypatch):
    def write_and_break(folder, *args, **kwargs):
        write_artifact(folder, *args, **kwargs)
        (folder / "goldens.json").write_text("{}")

    monkeypatch.setattr(pipeline.package, "write_artifact", write_and_break)
    with pytest.raises(pipeline.package.ArtifactError, match=r"goldens\.json"):
        package(small_run, "1.0.0", tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_artifact_holds_no_path_and_no_text_of_the_data(artifact):
    text = b"".join((artifact / name).read_bytes() for name in ALL_FILES)
    for trace in (str(ROOT).encode(), str(Path.home()).encode() + b"/", b"site-packages", b'.py"', b"debug_pkl"):
        assert trace not in text


def test_changed_training_record_is_verified_again_and_never_packaged(run, tmp_path):
    record = run / "train" / "train.json"
    document = json.loads(record.read_text())
    document["metrics"]["test"]["accuracy"] = 0.99999
    record.write_text(json.dumps(document))
    with pytest.raises(NotProvenError, match="was changed after verification"):
        package(run, "1.0.0", tmp_path / "artifacts")
    assert not verify(run, QUICK, show=False).passed


@pytest.mark.parametrize("text", ["{}", "[]", "null", "{", '{"files": {}}', '{"files": null}', "[" * 100_000])
@pytest.mark.parametrize("record", ["train/train.json", "export/export.json"])
def test_damaged_record_says_what_to_run(run, record, text):
    (run / record).write_text(text)
    stage = record.partition("/")[0]
    with pytest.raises(ValueError, match=f"Run `ferry {stage}"):
        verify(run, QUICK, show=False)


@pytest.mark.parametrize("text", ["{}", "[]", "{"])
def test_damaged_verification_is_not_packaged(run, tmp_path, text):
    (run / "verify" / "verification.json").write_text(text)
    with pytest.raises(NotProvenError, match=r"is damaged\. Run `ferry verify"):
        package(run, "1.0.0", tmp_path / "artifacts")


def test_damaged_export_record_heals(run):
    before = (run / "export" / "model.pt").read_bytes()
    (run / "export" / "export.json").write_text("{")
    assert not export(run, show=False).skipped
    assert (run / "export" / "model.pt").read_bytes() == before


def test_folder_of_somebody_else_is_never_replaced(run):
    shutil.rmtree(run / "export")
    (run / "export").mkdir()
    (run / "export" / "precious").write_text("kept")
    with pytest.raises(FileExistsError, match="was not written by Ferry and is never replaced"):
        export(run, show=False)
    assert contents(run / "export") == {Path("precious"): b"kept"}
