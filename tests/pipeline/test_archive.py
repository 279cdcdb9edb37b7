"""The tar beside the folder: made with it, made again if it is missing, and never changed."""

import gzip
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import pipeline.package
from export.artifact.layout import ALL_FILES, ArtifactError
from export.artifact.pack import write_artifact
from export.artifact.source import open_source
from pipeline.cli import cli
from pipeline.package import VersionTakenError, package
from pipeline.run import ROOT


@pytest.fixture
def packaged(artifact: Path, tmp_path: Path) -> Path:
    """The folder of a packaged version, with its tar beside it, that a test may change."""
    shutil.copytree(artifact.parent, tmp_path / "artifacts" / "small")
    return tmp_path / "artifacts" / "small" / "1.0.0"


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_tar_stands_beside_the_folder_and_holds_the_same(artifact: Path) -> None:
    assert names(artifact.parent) == {"1.0.0", "small-1.0.0.tar.gz"}
    archive = open_source(artifact.parent / "small-1.0.0.tar.gz")
    assert (archive.problems, archive.names, archive.top) == ((), set(ALL_FILES), "small-1.0.0")
    for name in ALL_FILES:
        assert archive.read(name) == (artifact / name).read_bytes()


def test_tar_has_the_permissions_that_the_umask_gives(artifact: Path) -> None:
    archive = artifact.parent / "small-1.0.0.tar.gz"
    assert archive.stat().st_mode == (artifact / "manifest.json").stat().st_mode


def test_packages_from_two_source_folders_are_identical(small_run: Path, artifact: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "another place"
    for room in ("models", "export", "pipeline"):
        shutil.copytree(ROOT / room, elsewhere / room, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(small_run, elsewhere / "run")
    command = [sys.executable, "pipeline/package.py", "--run", "run", "--artifacts", "out"]
    done = subprocess.run(command, cwd=elsewhere, check=True, capture_output=True, text=True)
    assert done.stdout == "package: out/small/1.0.0 is packaged, with small-1.0.0.tar.gz beside it\n"
    for name in ("small-1.0.0.tar.gz", *(f"1.0.0/{name}" for name in ALL_FILES)):
        assert (elsewhere / "out" / "small" / name).read_bytes() == (artifact.parent / name).read_bytes()


def test_missing_tar_is_made_and_a_good_one_is_left(packaged: Path, small_run: Path) -> None:
    archive = packaged.parent / "small-1.0.0.tar.gz"
    before = archive.read_bytes()
    archive.unlink()
    folder = {path: path.stat().st_mtime_ns for path in packaged.iterdir()}
    assert package(small_run, "1.0.0", packaged.parent.parent).skipped
    assert archive.read_bytes() == before
    assert {path: path.stat().st_mtime_ns for path in packaged.iterdir()} == folder
    # Compressed by another zlib it says the same, and stays.
    archive.write_bytes(gzip.compress(gzip.decompress(before), 1))
    kept = archive.read_bytes()
    assert package(small_run, "1.0.0", packaged.parent.parent).skipped
    assert archive.read_bytes() == kept
    assert names(packaged.parent) == {"1.0.0", "small-1.0.0.tar.gz"}


@pytest.mark.parametrize("folder", ["there", "missing"])
@pytest.mark.parametrize("damage", ["cut", "none", "link"])
def test_other_tar_is_never_changed(packaged: Path, small_run: Path, damage: str, folder: str) -> None:
    archive = packaged.parent / "small-1.0.0.tar.gz"
    whole = archive.read_bytes()
    archive.unlink()
    if damage == "link":
        archive.symlink_to("nowhere")
    else:
        archive.write_bytes(whole[:-9] if damage == "cut" else b"precious")
    if folder == "missing":
        shutil.rmtree(packaged)
    before = names(packaged.parent)
    with pytest.raises(VersionTakenError, match=r"small-1\.0\.0\.tar\.gz exists with other bytes and is never changed"):
        package(small_run, "1.0.0", packaged.parent.parent)
    assert names(packaged.parent) == before
    assert archive.is_symlink() or archive.read_bytes() in (whole[:-9], b"precious")


def test_version_of_which_only_the_tar_is_there_is_not_free(packaged: Path, small_run: Path) -> None:
    (packaged / "README.md").write_text("other")
    (packaged.parent / "small-1.0.1.tar.gz").write_bytes(b"precious")
    with pytest.raises(VersionTakenError, match=r"give VERSION=1\.0\.2 to the same make"):
        package(small_run, "1.0.0", packaged.parent.parent)


def test_package_that_fails_its_check_leaves_no_tar(
    tmp_path: Path, small_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_and_break(folder: Path, *args: object, **kwargs: object) -> None:
        write_artifact(folder, *args, **kwargs)
        (folder / "goldens.json").write_text("{}")

    monkeypatch.setattr(pipeline.package, "write_artifact", write_and_break)
    with pytest.raises(ArtifactError, match=r"goldens\.json"):
        package(small_run, "1.0.0", tmp_path / "artifacts")
    assert not (tmp_path / "artifacts").exists()


def test_tar_that_was_not_written_whole_is_told(
    tmp_path: Path, small_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline.package, "write_archive", lambda file, *_: file.write_bytes(b"half"))
    result = CliRunner().invoke(cli, ["package", "--run", str(small_run), "--artifacts", str(tmp_path / "artifacts")])
    assert (result.exit_code, result.stdout) == (1, "")
    assert "the tar of small-1.0.0 does not hold what was written into it" in result.stderr
    assert not (tmp_path / "artifacts").exists()


def test_check_reads_folder_and_tar(packaged: Path) -> None:
    archive = packaged.parent / "small-1.0.0.tar.gz"
    for path in (packaged, archive):
        result = CliRunner().invoke(cli, ["check", str(path)])
        assert (result.exit_code, result.output) == (0, f"check: {path} is sound (small 1.0.0)\n")
    answers = [CliRunner().invoke(cli, ["predict", str(path), "MIT licence"]).stdout for path in (packaged, archive)]
    assert answers[0] == answers[1]
    assert answers[0].count("\t") == 1
    archive.write_bytes(archive.read_bytes()[:-1000])
    result = CliRunner().invoke(cli, ["check", str(archive)])
    assert (result.exit_code, result.stdout) == (1, "")
    assert "or it is damaged" in result.stderr
    assert "Traceback" not in result.stderr


def test_check_reads_no_more_than_it_may(packaged: Path) -> None:
    for path in (packaged, packaged.parent / "small-1.0.0.tar.gz"):
        result = CliRunner().invoke(cli, ["check", str(path), "--max-size", "1"])
        size = sum(file.stat().st_size for file in packaged.iterdir())
        assert (result.exit_code, "it holds more than 1,048,576 bytes" in result.stderr) == (int(size > 2**20),) * 2
    assert CliRunner().invoke(cli, ["check", str(packaged), "--max-size", "0"]).exit_code == 2


def test_manifest_of_the_tar_is_that_of_the_folder(artifact: Path) -> None:
    archive = open_source(artifact.parent / "small-1.0.0.tar.gz")
    assert json.loads(archive.read("manifest.json")) == json.loads((artifact / "manifest.json").read_text())
