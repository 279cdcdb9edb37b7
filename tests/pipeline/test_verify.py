"""The stage verify: what it judges, what it refuses to judge, what it writes."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import numpy_helper

from export.artifact.layout import TOLD_FILES
from export.contract import TOKENIZER_CONFIG_FILE, TOKENIZER_FILE, TOKENIZER_JSON_FILE
from export.files import dump_json, sha256_bytes
from export.model import CONFIG_FILE, WEIGHTS_FILE
from export.onnx_export import ONNX_FILE
from export.precision_files import CALIBRATION_FILE, write_calibration
from export.proof import report
from export.proof.prove import Effort
from export.proof.runtimes import EAGER, open_runtime
from export.pt2 import PT2_FILE
from export.tokenizer import Tokenizer, pad_batch, train_tokenizer
from export.torchscript import TORCHSCRIPT_FILE
from pipeline import verify as stage
from pipeline.cli import cli
from pipeline.data.dataset import Split
from pipeline.data.test_split import TEST_SPLIT_FILE, write_test_split
from pipeline.run import ROOT, export_inputs
from pipeline.verify import Question, RefutedError, run_stage, verify
from tests.export.proof.subjects import LABELS, build_files
from tests.questions import QUICK

TEXTS = [f"the {word} licence, version {number}" for word in ("MIT", "BSD", "zlib") for number in range(6)]
MAX_LENGTH = 16


MODELS = (ONNX_FILE, TORCHSCRIPT_FILE, PT2_FILE)
TARGETS = np.arange(len(TEXTS)) % len(LABELS)


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run after its export, as the stages before leave it."""
    run = tmp_path_factory.mktemp("runs") / "good"
    run.mkdir()
    tokenizer_model = train_tokenizer(TEXTS, vocab_size=300)
    tokenizer = Tokenizer(tokenizer_model, max_length=MAX_LENGTH)
    files = build_files(tokenizer=tokenizer_model, vocab_size=tokenizer.vocab_size, max_len=MAX_LENGTH)
    write_test_split(run / "test.parquet", Split(TEXTS, TARGETS), per_token=False)
    eager = open_runtime(EAGER, files.__getitem__)
    answers = eager.run(*pad_batch(tokenizer.encode_batch(TEXTS))).argmax(axis=1)
    accuracy = float((answers == TARGETS).mean())
    write_stage(
        run / "train",
        "train.json",
        {
            **{name: files[name] for name in (CONFIG_FILE, WEIGHTS_FILE, TOKENIZER_FILE)},
            TOKENIZER_JSON_FILE: b"{}",
            TOKENIZER_CONFIG_FILE: b"{}",
            **dict.fromkeys(TOLD_FILES, b""),
            TEST_SPLIT_FILE: (run / "test.parquet").read_bytes(),
            CALIBRATION_FILE: write_calibration([np.array([2, 5, 3], np.int32)]),
        },
        name="stub",
        config={},
        golden_texts=[],
        data={"name": "stub", "sha256": "d" * 64},
        metrics={"test": {"accuracy": accuracy}},
    )
    write_export(run, files)
    return run


def write_stage(folder: Path, record: str, files: dict[str, bytes], **entries: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    hashes = {name: sha256_bytes(data) for name, data in files.items()}
    (folder / record).write_text(dump_json({"files": hashes, **entries}))


def write_export(run: Path, files: dict[str, bytes]) -> None:
    trained = json.loads((run / "train" / "train.json").read_text())
    models = {name: files[name] for name in MODELS}
    write_stage(run / "export", "export.json", models, inputs=export_inputs(trained["files"], {}))


@pytest.fixture
def run(finished_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished_run, tmp_path / "run"))


def record_of(run: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((run / "verify" / "verification.json").read_text())
    return record


def test_a_good_run_is_verified_and_the_record_names_every_file(run: Path) -> None:
    verification = verify(run, QUICK, show=False)
    assert verification.passed
    assert not verification.skipped
    record = record_of(run)
    assert record == verification.record
    assert record["verdict"] == "passed"
    assert record["providers"] == {"cpu": "verified", "cuda": "not verified"}
    for name in (CONFIG_FILE, WEIGHTS_FILE, TOKENIZER_FILE, *MODELS):
        folder = "export" if name in MODELS else "train"
        assert record["inputs"]["files"][name] == sha256_bytes((run / folder / name).read_bytes())


def test_the_same_question_is_not_answered_twice(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = verify(run, QUICK, show=False)
    second = verify(run, QUICK, show=False)
    assert second.skipped
    assert second.record == first.record
    monkeypatch.setattr(stage, "runtime_versions", lambda: {"torch": "another"})
    assert not verify(run, QUICK, show=False).skipped


class ProvedAgainError(Exception):
    """Stands for a proof, which would take its time."""


@pytest.mark.parametrize(
    ("question", "compiler"),
    [
        (replace(QUICK, effort=Effort(draws=1)), False),
        (replace(QUICK, effort=Effort(draws=0, seed=1)), False),
        (replace(QUICK, effort=Effort(draws=0, seconds=1.0)), False),
        (replace(QUICK, compiled=True), True),
    ],
    ids=["draws", "seed", "seconds", "compiled"],
)
def test_an_answer_to_less_is_no_answer(
    run: Path, monkeypatch: pytest.MonkeyPatch, question: Question, compiler: bool
) -> None:
    first = verify(run, QUICK, show=False)
    assert first.record["skipped"] == {"aot-inductor": "left out, as was asked"}
    assert first.record["effort"] == {"draws": 0, "seconds": None, "seed": 0}

    def prove_again(*_: Any, **__: Any) -> Any:
        raise ProvedAgainError

    monkeypatch.setattr(stage, "prove", prove_again)
    monkeypatch.setattr(stage, "missing_for_aot", lambda: [] if compiler else ["there is no compiler"])
    with pytest.raises(ProvedAgainError):
        verify(run, question, show=False)
    # Where nothing can be compiled, having left it out is all that can be asked.
    monkeypatch.setattr(stage, "missing_for_aot", lambda: ["there is no compiler"])
    assert verify(run, replace(QUICK, compiled=True), show=False).skipped


def test_the_page_follows_from_the_record_and_is_written_again_if_it_is_gone(run: Path) -> None:
    verify(run, QUICK, show=False)
    page = run / "verify" / "verification.html"
    assert page.read_text("utf-8") == report.page(record_of(run))
    assert "Ferry · verification · stub" in page.read_text("utf-8")
    page.unlink()
    assert not verify(run, QUICK, show=False).skipped
    assert page.is_file()


@pytest.mark.parametrize("damage", ["{", '{"verdict": "passed"}'])
def test_a_damaged_answer_is_no_answer(run: Path, damage: str) -> None:
    (run / "verify").mkdir()
    (run / "verify" / "verification.json").write_text(damage)
    assert not verify(run, QUICK, show=False).skipped
    assert record_of(run)["verdict"] == "passed"


def refute(run: Path) -> None:
    """Change one weight of model.onnx, every hash in order."""
    files = {name: (run / "export" / name).read_bytes() for name in MODELS}
    model = onnx.load_from_string(files[ONNX_FILE])
    bias = next(tensor for tensor in model.graph.initializer if tensor.name == "head.4.bias")
    bias.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(bias) + np.float32(1), bias.name))
    files[ONNX_FILE] = model.SerializeToString()
    write_export(run, files)


def test_a_wrong_model_is_refuted_on_paper_too(run: Path) -> None:
    verify(run, QUICK, show=False)
    refute(run)
    with pytest.raises(RefutedError, match=r"failures; all of them are in .*verification\.json"):
        run_stage(run)
    record = record_of(run)
    assert record["verdict"] == "failed"
    assert record["providers"]["cpu"] == "failed"
    assert {failure["backend"] for failure in record["failures"]} >= {
        "files",
        "onnxruntime-cpu-off",
        "onnxruntime-cpu-all",
    }
    assert len(record["failures"]) > 100
    # A refusal is never kept as an answer.
    assert not verify(run, QUICK, show=False).skipped


def test_a_wrong_recorded_accuracy_is_refused(run: Path) -> None:
    path = run / "train" / "train.json"
    record = json.loads(path.read_text())
    record["metrics"]["test"]["accuracy"] += 0.1
    path.write_text(dump_json(record))
    verification = verify(run, QUICK, show=False)
    assert [failure["where"] for failure in verification.record["failures"]] == ["test split"]


def test_a_stale_export_is_refused_with_the_command(run: Path) -> None:
    path = run / "export" / "export.json"
    record = json.loads(path.read_text())
    record["inputs"][WEIGHTS_FILE] = "0" * 64
    path.write_text(dump_json(record))
    with pytest.raises(ValueError, match=r"another checkpoint.*Run `ferry export --run"):
        verify(run, QUICK, show=False)
    assert not (run / "verify").exists()


@pytest.mark.parametrize("name", MODELS)
def test_a_file_changed_after_the_export_is_refused_by_name(run: Path, name: str) -> None:
    path = run / "export" / name
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(ValueError, match=f"{name}.*Run `ferry export --run"):
        verify(run, QUICK, show=False)


def test_a_missing_stage_and_an_unknown_provider_are_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Run `ferry train --run"):
        verify(tmp_path / "nothing", QUICK, show=False)
    shutil.rmtree(run / "export")
    with pytest.raises(ValueError, match="Run `ferry export --run"):
        verify(run, QUICK, show=False)
    with pytest.raises(ValueError, match="one of cpu, cuda; got tpu"):
        verify(run, replace(QUICK, providers=["tpu"]), show=False)


def test_cuda_that_can_not_run_is_an_error_and_leaves_the_record_alone(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("export.proof.runtimes.missing_for_cuda", lambda: ["libcudnn.so.9 is not there"])
    with pytest.raises(ValueError, match=r"cuda was asked for and can't run here: libcudnn\.so\.9 is not there"):
        verify(run, replace(QUICK, providers=["cpu", "cuda"]), show=False)
    assert not (run / "verify").exists()


def test_exit_codes_and_output_of_the_command(run: Path) -> None:
    command = ["verify", "--run", str(run), "--search", "0", "--no-compile"]
    good = CliRunner().invoke(cli, command)
    assert good.exit_code == 0
    page = run / "verify" / "verification.html"
    assert good.stdout.endswith(f"Verdict: passed. CPU: verified. CUDA: not verified.\nReport: {page}\n")
    again = CliRunner().invoke(cli, command)
    assert (again.exit_code, again.stdout) == (0, f"verify: {run / 'verify'} is current\n")
    refute(run)
    bad = CliRunner().invoke(cli, command)
    assert bad.exit_code == 1
    assert bad.stdout.endswith(f"Verdict: failed. CPU: failed. CUDA: not verified.\nReport: {page}\n")
    assert "files: weights: model.onnx has other values for the weight head.4.bias\n" in bad.stdout
    assert "first guilty layer: head.4, " in bad.stdout
    assert bad.stderr.count("\n") == 1
    missing = CliRunner().invoke(cli, ["verify", "--run", str(run / "nothing")])
    assert missing.exit_code == 2
    assert "Run `ferry train" in missing.stderr


@pytest.mark.parametrize("command", [["pipeline/verify.py"], ["-m", "pipeline.verify"]], ids=["file", "module"])
def test_the_stage_runs_alone(command: list[str], tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, *command, "--run", str(tmp_path / "nothing")], cwd=ROOT, capture_output=True, text=True
    )
    assert result.returncode == 2
    assert "Run `ferry train --run" in result.stderr
