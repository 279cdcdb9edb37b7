"""The Makefile's own decisions; that its targets do their work is what CI shows."""

import os
import shutil
import subprocess
import sys

import pytest

from pipeline.run import ROOT

pytestmark = pytest.mark.skipif(not shutil.which("make"), reason="make is not on this system")


@pytest.fixture
def make(tmp_path):
    """Run make in a folder that holds the Makefile and nothing else."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    # A make that runs these tests passes its own options and variables on.
    of_make = {"MAKEFLAGS", "MAKELEVEL", "MFLAGS"}
    variables_of_ours = {"CONFIG", "RUN", "VERSION", "ARTIFACTS", "PYTHON"}
    own = {"DATA", "VALIDATION", "TEST", "TEXT", "LABEL", "NONE_LABEL", "NAME"}
    environment = {key: value for key, value in os.environ.items() if key not in of_make | variables_of_ours | own}

    def run(*arguments, **variables):
        return subprocess.run(
            ["make", *arguments], cwd=tmp_path, env={**environment, **variables}, capture_output=True, text=True
        )

    return run


def test_help_names_the_interface(make):
    result = make("help")
    assert result.returncode == 0
    for word in (
        "train",
        "export",
        "verify",
        "package",
        "test",
        "CONFIG",
        "RUN",
        "VERSION",
        "PROVIDERS",
        "PRECISIONS",
        "PYTHON",
        "RESTART",
        "gpu-check",
        "tolerance",
        "bench",
        "bench-quick",
    ):
        assert word in result.stdout


def test_python_that_is_none_is_one_sentence(make, tmp_path):
    result = make("setup", "PYTHON=/none/python3")
    assert result.returncode == 2
    assert result.stderr.startswith(
        "Ferry needs Python 3.11, 3.12 or 3.13, and /none/python3 is none of them. "
        "Install one, or name it: make PYTHON=/path/to/python3.12\n"
    )
    assert not (tmp_path / ".venv").exists()


def test_no_python_at_all_is_one_sentence(make, tmp_path):
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("make", "sh", "touch", "rm", "echo"):
        (tools / name).symlink_to(shutil.which(name))
    result = make("setup", PATH=str(tools))
    assert result.returncode == 2
    assert result.stderr.startswith("Ferry needs Python 3.11, 3.12 or 3.13, and none is on PATH.")


@pytest.mark.parametrize("wrong", ["tpu", "gpu cpu", ""])
def test_unknown_onnx_runtime_is_refused_first(make, tmp_path, wrong):
    result = make("setup", f"ORT={wrong}", f"PYTHON={sys.executable}")
    assert result.returncode == 2
    assert f"ORT must be gpu or cpu; got '{wrong}'" in result.stderr
    assert not (tmp_path / ".venv").exists()


@pytest.mark.parametrize("wrong", ["0", "yes", "1 1 2"])
def test_restart_is_1_or_nothing(make, wrong):
    result = make("help", f"RESTART={wrong}")
    assert result.returncode == 2
    assert f"RESTART must be 1 or empty; got '{wrong}'" in result.stderr


@pytest.mark.parametrize("name", ["CONFIG", "RUN", "VERSION", "ARTIFACTS", "PROVIDERS"])
def test_empty_variable_is_refused(make, name):
    result = make("train", f"{name}=")
    assert result.returncode == 2
    assert f"{name} must not be empty" in result.stderr


@pytest.mark.parametrize(
    ("data", "run"),
    [
        ("mails.csv", "mails"),
        ("../mails.csv", "mails"),
        ("data/my mails/train.csv", "my_mails-train"),
        ("/somewhere/clinc150/", "somewhere-clinc150"),
        (".", "data"),
        ("./", "data"),
        ("..", "data"),
        ("../..", "data"),
        ("mails/..", "data"),
        ("/", "data"),
        ("mails/.csv", "data"),
        ("./mails", "mails"),
    ],
)
def test_own_data_names_the_run_and_leaves_the_configuration_to_its_kind(make, data, run):
    result = make("help", f"DATA={data}")
    assert result.returncode == 0
    assert f"[runs/{run}]" in result.stdout
    assert "CONFIG=FILE       configuration of the run      []" in result.stdout


def recipe(make, tmp_path, *arguments, **variables):
    """The line that `make train` would run."""
    for name in ("pyproject.toml", "constraints.txt"):
        (tmp_path / name).touch()
    return make("-n", "train", *arguments, **variables).stdout.splitlines()[-1].split()


def test_own_data_is_passed_on_in_quotes(make, tmp_path):
    line = recipe(make, tmp_path, "DATA=my data/a b.csv", "TEXT=the text", "NONE_LABEL=none", "NAME=n", "RESTART=1")
    assert line[1:] == [
        *("train", "--run", '"$RUN"', "--data", '"$DATA"', "--text", '"$TEXT"', "--none-label", '"$NONE_LABEL"'),
        *("--name", '"$NAME"', "--restart"),
    ]


def test_own_data_comes_from_the_command_line_alone(make, tmp_path):
    line = recipe(make, tmp_path, NAME="the host", TEST="1", DATA="x")
    assert line[1:] == ["train", "--config", '"$CONFIG"', "--run", '"$RUN"', "--resume"]


def test_quotes_are_no_syntax(make, tmp_path):
    result = make("help", "CONFIG=x'y\"z.toml", "RUN=a'; touch broken; '")
    assert result.returncode == 0
    assert "x'y\"z.toml" in result.stdout
    assert not (tmp_path / "broken").exists()


def test_stages_keep_their_order_in_parallel(make, tmp_path):
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "constraints.txt").touch()
    for path in ("python", "ferry"):
        (tmp_path / ".venv" / "bin").mkdir(parents=True, exist_ok=True)
        script = tmp_path / ".venv" / "bin" / path
        script.write_text('#!/bin/sh\n[ "$1" = train ] && sleep 0.2\necho "$(basename "$0") $*" >> log\n')
        script.chmod(0o755)
    assert make("train", "RESTART=1").returncode == 0
    variables = ("RUN=a run", "VERSION=2", "PROVIDERS=cpu cuda", "PRECISIONS=fp16 int8")
    result = make("package", "verify", "export", "train", "-j4", *variables)
    assert result.returncode == 0, result.stderr
    stages = [line for line in (tmp_path / "log").read_text().splitlines() if line.startswith("ferry")]
    assert stages == [
        "ferry train --config pipeline/configs/default.toml --run runs/default --restart",
        "ferry train --config pipeline/configs/default.toml --run a run --resume",
        "ferry export --run a run --profile cpu --precision fp16 --precision int8",
        "ferry verify --run a run --provider cpu --provider cuda",
        "ferry package --run a run --version 2 --artifacts artifacts",
    ]
