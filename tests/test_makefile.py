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
    environment = {key: value for key, value in os.environ.items() if key not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}

    def run(*arguments, **variables):
        return subprocess.run(
            ["make", *arguments], cwd=tmp_path, env={**environment, **variables}, capture_output=True, text=True
        )

    return run


def test_help_names_the_interface(make):
    result = make("help")
    assert result.returncode == 0
    for word in ("train", "export", "verify", "package", "test", "CONFIG", "RUN", "VERSION", "PROVIDERS", "PYTHON"):
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


@pytest.mark.parametrize("name", ["CONFIG", "RUN", "VERSION", "PROVIDERS"])
def test_empty_variable_is_refused(make, name):
    result = make("train", f"{name}=")
    assert result.returncode == 2
    assert f"{name} must not be empty" in result.stderr


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
    result = make("package", "verify", "export", "train", "-j4", "RUN=a run", "VERSION=2", "PROVIDERS=cpu cuda")
    assert result.returncode == 0, result.stderr
    stages = [line for line in (tmp_path / "log").read_text().splitlines() if line.startswith("ferry")]
    assert stages == [
        "ferry train --config pipeline/configs/default.toml --run a run",
        "ferry export --run a run",
        "ferry verify --run a run --provider cpu --provider cuda",
        "ferry package --run a run --version 2",
    ]
