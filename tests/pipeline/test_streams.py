"""Standard streams that are closed or full, disks that are full, and Ctrl-C: a sentence and an exit code each."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.run import ROOT
from tests.questions import NO_SEARCH

MAIN = "from pipeline.cli import main; main()"
FULL = Path("/dev/full")
NO_ROOM = "standard output can't be written: No space left on device. Send it to another place, or make room there.\n"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def through_shell(redirection: str, *arguments: object, cwd: Path) -> subprocess.CompletedProcess:
    """Run `ferry` with its streams redirected by a shell."""
    command = ["sh", "-c", f'exec "$@" {redirection}', "sh", sys.executable, "-c", MAIN, *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("closed", ["2>&-", "1>&- 2>&- <&-"], ids=["error", "all"])
def test_every_command_works_without_standard_error(tmp_path, small_config, closed):
    for arguments in (
        ["train", "--config", small_config, "--run", "run"],
        ["export", "--run", "run"],
        ["verify", "--run", "run", *NO_SEARCH],
        ["package", "--run", "run"],
        ["check", "artifacts/small/1.0.0"],
    ):
        result = through_shell(closed, *arguments, cwd=tmp_path)
        assert (result.returncode, result.stderr) == (0, ""), (arguments, result)
        assert ("1>&-" in closed) == (result.stdout == "")
    answer = through_shell(closed, "predict", "artifacts/small/1.0.0", "word " * 100, cwd=tmp_path)
    assert answer.returncode == ("1>&-" in closed), answer


def test_refusal_keeps_its_exit_code_without_standard_error(tmp_path):
    assert through_shell("2>&-", "export", "--run", "none", cwd=tmp_path).returncode == 2
    assert through_shell("2>&-", "export", "--bogus", cwd=tmp_path).returncode == 2
    if FULL.exists():
        assert through_shell("2>/dev/full", "export", "--run", "none", cwd=tmp_path).returncode == 2
        assert through_shell("2>/dev/full", "export", "--bogus", cwd=tmp_path).returncode == 2


@pytest.mark.skipif(not FULL.exists(), reason="only Linux has /dev/full")
@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["train", "--help"]], ids=" ".join)
def test_help_that_can_not_be_written_is_a_sentence(tmp_path, arguments):
    result = through_shell(">/dev/full", *arguments, cwd=tmp_path)
    who = "ferry train" if "train" in arguments else "ferry"
    assert (result.returncode, result.stderr) == (1, f"{who}: {NO_ROOM}")


@pytest.mark.skipif(not FULL.exists(), reason="only Linux has /dev/full")
@pytest.mark.parametrize("texts", [["MIT"], ["MIT"] * 500], ids=["one", "many"])
def test_answers_that_can_not_be_written_are_a_sentence(tmp_path, artifact, texts):
    result = through_shell(">/dev/full", "predict", artifact, *texts, cwd=tmp_path)
    assert (result.returncode, result.stderr) == (1, f"ferry predict: {NO_ROOM}")
    result = through_shell(">/dev/full", "check", artifact, cwd=tmp_path)
    assert (result.returncode, result.stderr) == (1, f"ferry check: {NO_ROOM}")


def test_reader_that_leaves_is_no_complaint(tmp_path, artifact):
    result = through_shell("| true", "predict", artifact, *["MIT"] * 100, cwd=tmp_path)
    assert result.stderr == ""


@pytest.fixture
def disk(tmp_path):
    """Mount a memory disk of this size at tmp_path/artifacts; root may."""
    folder = tmp_path / "artifacts"
    folder.mkdir()

    def mount(size: str) -> None:
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip("mounting a disk needs root")

    yield mount
    subprocess.run(["umount", str(folder)], capture_output=True, check=False)


@pytest.mark.parametrize("size", ["16k", "200k"], ids=["no file", "some files"])
def test_package_on_a_full_disk_names_it_and_leaves_nothing(tmp_path, small_run, disk, size):
    disk(size)
    result = through_shell("", "package", "--run", small_run, cwd=tmp_path)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == (
        "ferry package: artifacts/small/1.0.0: No space left on device. Make room there, or name another folder.\n"
    )
    assert os.listdir(tmp_path / "artifacts") == []


def test_temporary_folder_that_is_full_is_named(tmp_path, small_run, artifact, disk, monkeypatch):
    disk("16k")
    monkeypatch.setitem(ENVIRONMENT, "TMPDIR", str(tmp_path / "artifacts"))
    result = through_shell("", "package", "--run", small_run, "--artifacts", artifact.parent.parent, cwd=tmp_path)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith(f"ferry package: the temporary folder {tmp_path / 'artifacts'}")
    assert result.stderr.endswith(
        "can't be written: No space left on device. Make room there, or name another one in the environment's TMPDIR.\n"
    )


# Ctrl-C at the moment at which a module is looked for.
INTERRUPTED_AT = """
import signal, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Finder())
"""


# A shell's background job has SIGINT ignored, and so would its children.
HEARS_CTRL_C = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"


@pytest.mark.parametrize("module", ["export.artifact.load", "numpy", "torch", "onnxruntime"])
def test_ctrl_c_during_imports_is_one_line(tmp_path, artifact, module):
    result = subprocess.run(
        [
            sys.executable,
            "-c",
            HEARS_CTRL_C + INTERRUPTED_AT.format(module=module) + MAIN,
            "predict",
            str(artifact),
            "MIT",
        ],
        **{"cwd": tmp_path, "env": ENVIRONMENT, "capture_output": True, "text": True, "check": False},
    )
    assert (result.returncode, result.stdout, result.stderr) == (130, "", "ferry predict: interrupted\n")


@pytest.mark.parametrize(("number", "said"), [(signal.SIGINT, "ferry predict: interrupted\n"), (signal.SIGTERM, "")])
def test_signal_while_texts_are_awaited(tmp_path, artifact, number, said):
    process = subprocess.Popen(
        [sys.executable, "-c", HEARS_CTRL_C + MAIN, "predict", str(artifact)],
        **{"cwd": tmp_path, "env": ENVIRONMENT, "text": True},
        **dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE),
    )
    # A whole batch, which is answered at once.
    process.stdin.write("MIT\n" * 32)
    process.stdin.flush()
    assert process.stdout.readline()
    process.send_signal(number)
    _, error = process.communicate(timeout=60)
    assert (process.returncode, error) == (128 + number, said)
