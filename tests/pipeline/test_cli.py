import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from pipeline.cli import cli
from pipeline.run import ROOT

COMMANDS = ["train", "export", "verify", "package", "check", "predict", "sign"]


@pytest.fixture
def ferry(monkeypatch, tmp_path):
    """Run a command in an empty folder and return its result."""
    monkeypatch.chdir(tmp_path)
    return lambda *args, **options: CliRunner().invoke(cli, [str(arg) for arg in args], **options)


def test_help_names_every_command(ferry):
    result = ferry("--help")
    assert result.exit_code == 0
    lines = result.output.partition("Commands:\n")[2].splitlines()
    assert [line.split()[0] for line in lines] == sorted(COMMANDS)
    # Click cuts a summary that is too long for its line.
    assert not any(line.endswith("...") for line in lines)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(ferry, command):
    result = ferry(command, "--help")
    assert result.exit_code == 0
    assert f"Usage: cli {command}" in result.output


@pytest.mark.parametrize("command", COMMANDS)
def test_help_imports_nothing_heavy(command):
    script = (
        "import sys; from pipeline.cli import cli\n"
        f"try: cli(['{command}', '--help'])\n"
        "except SystemExit: pass\n"
        "sys.exit(bool({'torch', 'onnx', 'onnxruntime', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True).returncode == 0


@pytest.mark.parametrize("command", ["train", "export", "verify", "package"])
def test_stage_files_run_alone_from_any_folder(tmp_path, command):
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    for target in ([str(ROOT / "pipeline" / f"{command}.py")], ["-m", f"pipeline.{command}"]):
        folder = ROOT if target[0] == "-m" else tmp_path
        result = subprocess.run(
            [sys.executable, *target, "--help"], cwd=folder, env=environment, capture_output=True, text=True
        )
        assert result.returncode == 0, result.stderr
        assert result.stdout.startswith(f"Usage: ferry {command}")


@pytest.mark.parametrize("command", ["export", "verify", "package"])
def test_stage_without_a_run_is_one_sentence(ferry, command):
    result = ferry(command, "--run", "none")
    assert result.exit_code == 2
    assert (
        result.stderr
        == f"ferry {command}: none/train holds no result of the stage train. Run `ferry train --run none` first.\n"
    )


@pytest.mark.parametrize("seconds", ["nan", "inf", "0", "-1"])
def test_a_search_takes_a_number_of_seconds(ferry, seconds):
    result = ferry("verify", "--run", "none", "--seconds", seconds)
    assert result.exit_code == 2
    assert "Invalid value for '--seconds'" in result.stderr


def test_missing_configuration_is_one_sentence(ferry):
    result = ferry("train", "--config", "none.toml")
    assert result.exit_code == 2
    assert result.stderr == (
        "ferry train: the configuration none.toml does not exist. Start from pipeline/configs/default.toml.\n"
    )


def test_impossible_model_is_told_before_anything_is_trained(ferry, tmp_path):
    (tmp_path / "bad.toml").write_text('name = "x"\n[model]\ndim = 130\nnum_heads = 4\nattention = "magic"\n')
    result = ferry("train", "--config", "bad.toml", "--run", "run")
    assert result.exit_code == 2
    assert "width 130 not divisible by 4 heads" in result.stderr
    assert "attention 'magic' is unknown; choose one of full, sdpa." in result.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("command", ["check", "predict", "sign"])
def test_artifact_that_is_nowhere_is_asked_wrongly(ferry, command):
    result = ferry(command, "none")
    assert result.exit_code == 2
    assert "Path 'none' does not exist" in result.stderr


def test_debug_shows_the_traceback(ferry):
    result = ferry("--debug", "export", "--run", "none")
    assert isinstance(result.exception, ValueError)


def test_unknown_provider_is_asked_wrongly(ferry):
    result = ferry("verify", "--provider", "tpu")
    assert result.exit_code == 2
    assert "'tpu' is not one of 'cpu', 'cuda'" in result.stderr


def test_check_accepts_a_good_artifact(ferry, artifact):
    result = ferry("check", artifact)
    assert (result.exit_code, result.stdout) == (0, f"check: {artifact} is sound (small 1.0.0)\n")


def test_check_refuses_a_broken_artifact(ferry, broken):
    (broken / "model.pt").write_bytes(b"")
    result = ferry("check", broken)
    assert result.exit_code == 1
    assert "model.pt is not the file that manifest.json describes" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("runtime", ["onnxruntime", "torchscript"])
def test_predict_answers_arguments_and_standard_input_alike(ferry, artifact, runtime):
    texts = ["Licensed under the Apache License, Version 2.0", "", "MIT"]
    from_arguments = ferry("predict", artifact, "--runtime", runtime, "--", *texts)
    from_input = ferry("predict", artifact, "--runtime", runtime, input="\n".join(texts) + "\n")
    assert from_arguments.exit_code == from_input.exit_code == 0
    assert from_arguments.stdout == from_input.stdout
    labels = [line.split("\t")[0] for line in from_arguments.stdout.splitlines()]
    probabilities = [float(line.split("\t")[1]) for line in from_arguments.stdout.splitlines()]
    assert len(labels) == 3
    assert all(0 < probability <= 1 for probability in probabilities)


def test_predict_tells_what_was_cut(ferry, artifact):
    result = ferry("predict", artifact, "short", "word " * 100)
    assert result.exit_code == 0
    assert result.stderr.startswith("text 2 was cut: ")


def test_predict_refuses_what_is_not_utf8(ferry, artifact):
    result = ferry("predict", artifact, input=b"good\n\xff\n")
    assert result.exit_code == 1
    assert result.stdout.count("\n") == 1
    assert "text 2: text must be valid UTF-8; got byte 0xff" in result.stderr


@pytest.mark.parametrize("command", ["train", "export", "verify", "package"])
@pytest.mark.parametrize("run", [".", "./"])
def test_run_must_be_a_folder_of_its_own(ferry, command, run):
    result = ferry(command, "--run", run)
    assert result.exit_code == 2
    assert "must name a folder of its own" in result.stderr
