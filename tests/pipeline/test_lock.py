"""One process at a time writes into a run folder, and a dead one stands in nobody's way."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import pipeline.lock
from export.errors import FerryError
from export.files import recover_folder
from pipeline.cli import cli
from pipeline.lock import LOCK_FILE, LockedError, locked
from pipeline.run import ROOT, exclusive

HOLDER = """
import sys
from pathlib import Path
from pipeline.lock import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the lock of tmp_path/run."""
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "run")]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_folder_is_made_and_goes_again(tmp_path):
    run = tmp_path / "a" / "run"
    with locked(run):
        assert (run / LOCK_FILE).read_text() == f"{os.getpid()}\n"
    assert list(tmp_path.iterdir()) == []


def test_what_was_made_inside_stays_and_the_lock_goes(tmp_path):
    with locked(tmp_path / "run"):
        (tmp_path / "run" / "train").mkdir()
    assert os.listdir(tmp_path / "run") == ["train"]


def test_holds_where_the_working_directory_changes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    with locked(Path("run")):
        monkeypatch.chdir("elsewhere")
    assert os.listdir(tmp_path) == ["elsewhere"]


@pytest.mark.parametrize("command", ["train", "export", "verify"])
def test_second_process_is_told_who_is_first(tmp_path, holder, small_config, command):
    config = ["--config", str(small_config)] if command == "train" else []
    result = CliRunner().invoke(cli, [command, *config, "--run", str(tmp_path / "run")])
    assert result.exit_code == 1
    assert result.stderr == (
        f"ferry {command}: process {holder.pid} is working in {tmp_path}/run. "
        "Wait until it has ended, or name another folder with --run.\n"
    )


def test_killed_holder_stands_in_nobodys_way(tmp_path, holder):
    with pytest.raises(LockedError), locked(tmp_path / "run"):
        pass
    holder.kill()
    holder.wait()
    assert (tmp_path / "run" / LOCK_FILE).exists()
    with locked(tmp_path / "run"):
        pass
    assert os.listdir(tmp_path / "run") == []


def test_holder_that_leaves_lets_the_next_one_in(tmp_path, holder):
    holder.stdin.close()
    holder.wait()
    with locked(tmp_path / "run"):
        pass


def test_lock_of_a_file_that_is_gone_is_no_lock(tmp_path, monkeypatch):
    """Between opening and locking, the holder may have taken the file away; a third may hold the new one."""
    (tmp_path / LOCK_FILE).touch()
    flock, calls = pipeline.lock.fcntl.flock, []

    def slow(descriptor, operation):
        if not calls:
            (tmp_path / LOCK_FILE).unlink()
        calls.append(descriptor)
        flock(descriptor, operation)

    monkeypatch.setattr(pipeline.lock.fcntl, "flock", slow)
    with locked(tmp_path):
        assert (tmp_path / LOCK_FILE).read_text() == f"{os.getpid()}\n"
    assert len(calls) == 2


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_file_system_without_locks_is_a_sentence(tmp_path, monkeypatch, number):
    def refuse(descriptor, operation):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(pipeline.lock.fcntl, "flock", refuse)
    with pytest.raises(FerryError) as caught, locked(tmp_path / "run"):
        pass
    assert str(caught.value) == (
        f"the file system of {tmp_path}/run has no file locks (flock: {os.strerror(number)}), without which two "
        "processes could spoil each other's work. Put the run on a local file system."
    )


def test_run_that_is_a_file_is_a_sentence(tmp_path):
    (tmp_path / "run").touch()
    with pytest.raises(ValueError, match="run must be a folder; it is something else"), locked(tmp_path / "run"):
        pass
    with pytest.raises(FerryError, match="Not a directory"), locked(tmp_path / "run" / "deeper"):
        pass


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.ENOSPC])
def test_folder_that_can_not_be_written_is_a_sentence(tmp_path, monkeypatch, number):
    def refuse(path, *args):
        raise OSError(number, os.strerror(number), path)

    monkeypatch.setattr(pipeline.lock.os, "open", refuse)
    with pytest.raises(FerryError) as caught, locked(tmp_path / "run"):
        pass
    assert str(caught.value) == (
        f"the run folder {tmp_path}/run can't be written: {os.strerror(number)}. "
        "Mend that, or name another folder with --run."
    )


def made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "file").write_text(folder.name)
    return folder


@pytest.mark.parametrize("stage", ["train", "export", "verify"])
def test_leftovers_of_killed_stages_are_swept(tmp_path, stage):
    made(tmp_path / f".{stage}-ab12_xyz" / "new")
    made(tmp_path / f".{stage}-00000000" / "old")
    (tmp_path / f".{stage}-empty000").mkdir()
    made(tmp_path / stage)
    with exclusive(tmp_path):
        assert sorted(os.listdir(tmp_path)) == [LOCK_FILE, stage]
        assert (tmp_path / stage / "file").read_text() == stage


def test_only_old_result_is_put_back(tmp_path):
    made(tmp_path / ".train-ab12_xyz" / "new")
    made(tmp_path / ".train-ab12_xyz" / "old")
    with exclusive(tmp_path):
        assert (tmp_path / "train" / "file").read_text() == "old"
    assert os.listdir(tmp_path) == ["train"]


@pytest.mark.parametrize(
    "name", [".train-ab12_xyz/mine", ".train-mine/new", ".train-ABCDEFGH/new", ".other-ab12_xyz/new"]
)
def test_what_is_not_ours_stays(tmp_path, name):
    made(tmp_path / name)
    recover_folder(tmp_path / "train")
    assert (tmp_path / name / "file").exists()


def test_link_is_not_followed(tmp_path):
    made(tmp_path / "pointed" / "new")
    (tmp_path / ".train-ab12_xyz").symlink_to("pointed")
    recover_folder(tmp_path / "train")
    assert (tmp_path / "pointed" / "new" / "file").exists()
