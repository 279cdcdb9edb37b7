"""Names and places that people bring: spaces, slashes, dots, 300 characters, other folders, no network, two at once."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from pipeline.cli import cli
from pipeline.run import ROOT
from tests.questions import NO_SEARCH

MAIN = [sys.executable, "-c", "from pipeline.cli import main; main()"]


def ferry(*arguments, cwd, prefix=(), **options) -> subprocess.CompletedProcess:
    """Run `ferry` in a process of its own, from a folder."""
    return subprocess.run(
        [*prefix, *MAIN, *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        **options,
    )


@pytest.fixture
def finished(tmp_path, small_run):
    """Copy a run that only wants packaging to a place of this name."""

    def copy(name: str) -> Path:
        (tmp_path / "work").mkdir(exist_ok=True)
        return Path(shutil.copytree(small_run, tmp_path / "work" / name))

    return copy


@pytest.mark.parametrize(
    "name", ["my run, the 2nd", "runs/of/mine", "../up", "läufe 許諾", "-run", "a'b\"c", "x" * 200]
)
def test_a_run_may_be_called_anything_that_a_folder_may(tmp_path, finished, name):
    finished(name)
    work = tmp_path / "work"
    assert ferry("export", f"--run={name}", cwd=work).stdout == f"export: {Path(name) / 'export'} is current\n"
    done = ferry("package", f"--run={name}", "--artifacts", "my artifacts/of 2026", cwd=work)
    assert (done.returncode, done.stderr) == (0, ""), done
    assert ferry("check", "my artifacts/of 2026/small/1.0.0", cwd=work).returncode == 0


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("x" * 300, 1, "File name too long"),
        ("", 2, "must not be empty"),
        (".", 2, "must name a folder of its own"),
        ("file", 2, "is a file"),
        ("file/run", 1, "Not a directory"),
    ],
    ids=["300 characters", "empty", "here", "a file", "under a file"],
)
@pytest.mark.parametrize("stage", ["train", "export", "verify"])
def test_what_no_folder_may_be_called_is_a_sentence(tmp_path, small_config, stage, name, code, said):
    (tmp_path / "file").touch()
    arguments = ["--config", str(small_config)] if stage == "train" else []
    result = ferry(stage, *arguments, f"--run={name}", cwd=tmp_path)
    assert result.returncode == code, result
    assert said in result.stderr
    assert "Traceback" not in result.stderr
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--version", "1/0"], "the version must be 1 to 100 letters"),
        (["--version", ".."], "the version must be 1 to 100 letters"),
        (["--version", "1 0"], "the version must be 1 to 100 letters"),
        (["--version", "v" * 300], "got 'vvvvvvvvvvvvvvvvvvvv' … of 300 characters"),
        (["--artifacts", ""], "must not be empty"),
    ],
)
def test_a_version_is_a_plain_name(tmp_path, finished, options, said):
    finished("run")
    result = ferry("package", "--run", "run", *options, cwd=tmp_path / "work")
    assert result.returncode == 2
    assert said in result.stderr
    assert os.listdir(tmp_path / "work") == ["run"]


@pytest.mark.parametrize("name", ["a/b", "..", "my name", "n" * 300, ""])
def test_an_artifacts_name_is_a_plain_name(tmp_path, small_config, name):
    config = tmp_path / "c.toml"
    config.write_text(small_config.read_text())
    result = ferry("train", "--config", config, "--run", "run", f"--name={name}", cwd=tmp_path)
    assert result.returncode == 2
    assert "name must be 1 to 100 letters, digits, dots, hyphens or underscores" in result.stderr
    assert os.listdir(tmp_path) == ["c.toml"]


def test_a_name_that_is_too_long_for_the_disk_is_a_sentence(tmp_path, finished):
    finished("run")
    result = ferry("package", "--run", "run", "--artifacts", "a" * 300, cwd=tmp_path / "work")
    assert (result.returncode, "File name too long" in result.stderr) == (1, True), result
    assert "Traceback" not in result.stderr


def test_two_versions_are_packaged_at_once(tmp_path, finished):
    finished("run")
    command = [*MAIN, "package", "--run", "run", "--version"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [*command, version],
            cwd=tmp_path / "work",
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for version in ("1.0.0", "2.0.0", "2.0.0")
    ]
    answers = [(*process.communicate(), process.returncode) for process in processes]
    # Of two that write one version, one is first; the other finds the same bytes there.
    assert [(error, code) for _, error, code in answers] == [("", 0)] * 3, answers
    assert answers[0][0] == "package: artifacts/small/1.0.0 is packaged, with small-1.0.0.tar.gz beside it\n"
    states = ("is packaged", "is already packaged")
    said = {f"package: artifacts/small/2.0.0 {state}, with small-2.0.0.tar.gz beside it\n" for state in states}
    assert {answers[1][0], answers[2][0]} == said
    for version in ("1.0.0", "2.0.0"):
        assert ferry("check", f"artifacts/small/{version}", cwd=tmp_path / "work").returncode == 0
    assert sorted(os.listdir(tmp_path / "work" / "artifacts" / "small")) == [
        *("1.0.0", "2.0.0"),
        *("small-1.0.0.tar.gz", "small-2.0.0.tar.gz"),
    ]


@pytest.mark.parametrize("when", ["while it is checked", "at the rename"])
@pytest.mark.parametrize("theirs", ["identical", "other"])
def test_version_that_appears_meanwhile_is_compared(tmp_path, small_run, artifact, monkeypatch, theirs, when):
    target = tmp_path / "artifacts" / "small" / "1.0.0"
    rename = Path.rename

    def appear() -> None:
        shutil.copytree(artifact, target)
        if theirs == "other":
            (target / "README.md").write_text("other")

    def late_rename(source: Path, to: Path) -> Path:
        appear()
        return rename(source, to)

    if when == "at the rename":
        monkeypatch.setattr(Path, "rename", late_rename)
    else:
        monkeypatch.setattr("pipeline.package._check_in_fresh_process", lambda _: appear())
    result = CliRunner().invoke(cli, ["package", "--run", str(small_run), "--artifacts", str(tmp_path / "artifacts")])
    if theirs == "identical":
        assert (result.exit_code, result.output) == (
            0,
            f"package: {target} is already packaged, with small-1.0.0.tar.gz beside it\n",
        )
        assert sorted(os.listdir(target.parent)) == ["1.0.0", "small-1.0.0.tar.gz"]
    else:
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr == (
            f"ferry package: {target} exists with other bytes and is never changed. "
            "The next free version is 1.0.1: give VERSION=1.0.1 to the same make, or --version to ferry package.\n"
        )
        assert os.listdir(target.parent) == ["1.0.0"]


@pytest.mark.parametrize("command", ["train", "export", "verify", "package"])
@pytest.mark.parametrize("where", ["the run", "the working directory"])
def test_a_path_that_is_not_utf8_is_refused_first(tmp_path, command, where):
    name = os.fsdecode(b"r\xff")
    here = tmp_path
    if where == "the working directory":
        here = tmp_path / name
        try:
            here.mkdir()
        except OSError:
            pytest.skip("this file system takes UTF-8 alone")
    result = ferry(command, f"--run={name if where == 'the run' else 'run'}", cwd=here)
    assert (result.returncode, result.stdout) == (2, "")
    assert "Error: Invalid value for '--run': the path's name must be UTF-8; got b'" in result.stderr
    assert result.stderr.endswith("'. Name another folder.\n")
    assert os.listdir(here) == []


def test_artifacts_that_are_not_utf8_are_refused(tmp_path, finished):
    finished("run")
    result = ferry(
        "package", "--run=run", b"--artifacts=a\xff".decode("utf-8", "surrogateescape"), cwd=tmp_path / "work"
    )
    assert (result.returncode, result.stdout) == (2, "")
    assert "Error: Invalid value for '--artifacts': the path's name must be UTF-8; got b'" in result.stderr
    assert os.listdir(tmp_path / "work") == ["run"]


def can(*command: str) -> bool:
    return bool(shutil.which(command[0])) and subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not can("unshare", "-n", "true"), reason="taking the network away needs root")
def test_nothing_needs_a_network(tmp_path, small_config, artifact):
    alone = ("unshare", "-n")
    for arguments in (
        ["train", "--config", small_config, "--run", "run"],
        ["export", "--run", "run"],
        ["verify", "--run", "run", *NO_SEARCH],
        ["package", "--run", "run"],
        ["check", "artifacts/small/1.0.0"],
        ["predict", "artifacts/small/1.0.0", "MIT"],
    ):
        result = ferry(*arguments, cwd=tmp_path, prefix=alone)
        assert result.returncode == 0, result


@pytest.mark.skipif(not can("unshare", "-m", "true"), reason="mounting a folder read-only needs root")
def test_a_read_only_checkout_works_elsewhere(tmp_path, small_config):
    """The code lies where nothing can be written; runs and artifacts go to folders that are named."""
    clone = tmp_path / "read only clone"
    for room in ("models", "export", "pipeline"):
        shutil.copytree(ROOT / room, clone / room, ignore=shutil.ignore_patterns("__pycache__"))
    script = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && cd "$1" && shift && exec "$@"'
    inside = ("unshare", "-m", "sh", "-c", script, "sh", str(clone))
    run, artifacts = tmp_path / "my run", tmp_path / "my artifacts"

    def there(*arguments) -> subprocess.CompletedProcess:
        command = [*inside, *MAIN, *map(str, arguments)]
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        return subprocess.run(
            command, env={**environment, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False
        )

    for arguments in (
        ["train", "--config", small_config, "--run", run],
        ["export", "--run", run],
        ["verify", "--run", run, *NO_SEARCH],
        ["package", "--run", run, "--artifacts", artifacts],
    ):
        result = there(*arguments)
        assert result.returncode == 0, result
    inside_the_clone = there("train", "--config", small_config, "--run", "run")
    assert inside_the_clone.returncode == 1
    assert "the run folder run can't be written: Read-only file system" in inside_the_clone.stderr
    package = there("package", "--run", run)
    assert (package.returncode, "Read-only file system" in package.stderr) == (1, True), package
    assert "Traceback" not in package.stderr + inside_the_clone.stderr
