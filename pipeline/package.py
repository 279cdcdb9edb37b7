"""Stage 4, package: the proven files of a run become one versioned folder, artifacts/<name>/<version>, and its tar."""

import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # Run as a file, imports would start in this folder, where `export` is another module.
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    from pipeline.cli import main

    main(["package", *sys.argv[1:]])

import click

from export.artifact.archive import SUFFIX, top_folder, write_archive
from export.artifact.layout import KNOWN_FILES, TOLD_FILES, ArtifactError
from export.artifact.pack import write_artifact
from export.artifact.source import open_source
from export.contract import TOKENIZER_CONFIG_FILE, TOKENIZER_FILE, TOKENIZER_JSON_FILE
from export.errors import FerryError
from export.files import new_file, new_folder, read_json, sha256_bytes
from export.model import CONFIG_FILE, WEIGHTS_FILE
from export.onnx_export import ONNX_FILE
from export.precision_files import OPTIONAL_FILES
from export.proof.report import PASSED
from export.pt2 import PT2_FILE
from export.torchscript import TORCHSCRIPT_FILE
from pipeline.config import artifact_name_problems
from pipeline.run import (
    EXPORT_FOLDER,
    ROOT,
    TRAIN_FOLDER,
    TRAIN_RECORD,
    VERIFY_FOLDER,
    VERIFY_RECORD,
    read_record,
    record_hash,
)

# Which stage's folder each packaged file comes from.
SOURCES = {
    CONFIG_FILE: TRAIN_FOLDER,
    WEIGHTS_FILE: TRAIN_FOLDER,
    TOKENIZER_FILE: TRAIN_FOLDER,
    TOKENIZER_JSON_FILE: TRAIN_FOLDER,
    TOKENIZER_CONFIG_FILE: TRAIN_FOLDER,
    TORCHSCRIPT_FILE: EXPORT_FOLDER,
    ONNX_FILE: EXPORT_FOLDER,
    PT2_FILE: EXPORT_FOLDER,
}
# And those that verification may have judged beside.
OPTIONAL_SOURCES = dict.fromkeys(OPTIONAL_FILES, EXPORT_FOLDER)


class NotProvenError(FerryError):
    """The files of a run are not those that verification passed."""


class VersionTakenError(FerryError):
    """The version exists with other bytes."""


@dataclass(frozen=True)
class Packaged:
    """The result of the stage: the folder and its tar; `skipped` if the folder already held these very bytes."""

    folder: Path
    archive: Path
    skipped: bool


def package(run: Path, version: str, artifacts: Path) -> Packaged:
    """Package what verification passed.

    Raises:
        ValueError: if the version can't be a folder's name, or a stage was not run.
        NotProvenError: if verification is missing, failed, or judged other bytes.
        VersionTakenError: if the version exists with other bytes; names the next free one.
        ArtifactError: if the packaged bytes do not pass the check of a fresh process.
    """
    problems = artifact_name_problems(version, "the version")
    if problems:
        raise ValueError(problems[0])
    record = read_record(run, TRAIN_FOLDER, TRAIN_RECORD, stage="train")
    proven, verification = _proven_files(run)
    told = _told_files(run, record)
    if verification["inputs"].get("record") != record_hash(record):
        raise NotProvenError(f"{run / TRAIN_FOLDER / TRAIN_RECORD} was changed after verification. Verify again.")
    problems = artifact_name_problems(record["name"], "the artifact's name")
    if problems:
        raise ValueError(problems[0])
    target = artifacts / record["name"] / version
    top = top_folder(record["name"], version)
    archive = target.with_name(top + SUFFIX)
    write = partial(write_artifact, proven=proven, told=told, version=version, record=record, verification=verification)
    if not target.exists():
        try:
            # The folder appears when the inner block ends, and the tar, made of the same bytes, right after it.
            with new_file(archive) as packed, new_folder(target, replace=False) as work:
                write(work)
                contents = _read_contents(work)
                _refuse_other_archive(archive, target, contents)
                _pack(packed, top, contents)
                _check_in_fresh_process(work)
            return Packaged(target, archive, skipped=False)
        except FileExistsError:
            # Another process has packaged this version meanwhile.
            if not target.exists():
                raise
    with tempfile.TemporaryDirectory() as scratch:
        try:
            write(Path(scratch))
        except OSError as error:
            raise FerryError(
                f"the temporary folder {scratch} can't be written: {error.strerror}. "
                "Make room there, or name another one in the environment's TMPDIR."
            ) from error
        contents = _read_contents(Path(scratch))
    _refuse_other_folder(target, contents)
    _refuse_other_archive(archive, target, contents)
    if not archive.exists():
        with new_file(archive) as packed:
            _pack(packed, top, contents)
    return Packaged(target, archive, skipped=True)


def _proven_files(run: Path) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Read the files to package, each with the hash that verification passed, and the verification."""
    path = run / VERIFY_FOLDER / VERIFY_RECORD
    again = f"Run `ferry verify --run {run}`."
    if not path.is_file():
        raise NotProvenError(f"{run} was not verified. {again}")
    try:
        verification = read_json(path)
        verdict, judged = verification["verdict"], verification["inputs"]["files"].copy()
    except (ValueError, KeyError, TypeError, AttributeError):
        raise NotProvenError(f"{path} is damaged. {again}") from None
    if verdict != PASSED:
        raise NotProvenError(f"verification failed, see {path}. Mend what it lists; then: {again}")
    proven = {}
    optional = {name: folder for name, folder in OPTIONAL_SOURCES.items() if name in judged}
    for name, folder in (SOURCES | optional).items():
        file = run / folder / name
        if not file.is_file():
            raise NotProvenError(f"{file} is missing. {again}")
        proven[name] = file.read_bytes()
        if judged.get(name) != sha256_bytes(proven[name]):
            raise NotProvenError(f"{file} is not the file that was verified. {again}")
    return proven, verification


def _told_files(run: Path, record: dict[str, Any]) -> dict[str, bytes]:
    """Read the evaluation and its pictures, each with the hash that the record of training has."""
    told = {name: (run / TRAIN_FOLDER / name).read_bytes() for name in TOLD_FILES}
    for name, data in told.items():
        if record["files"][name] != sha256_bytes(data):
            raise NotProvenError(f"{run / TRAIN_FOLDER / name} was changed while it was read. Package again.")
    return told


def _read_contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in KNOWN_FILES if (folder / name).is_file()}


def _pack(file: Path, top: str, contents: dict[str, bytes]) -> None:
    """Write the tar, and read it back as whoever receives it does."""
    write_archive(file, top, contents)
    if not _holds(file, contents):
        raise FerryError(f"the tar of {top} does not hold what was written into it. Look at the disk; package again.")


def _holds(archive: Path, contents: dict[str, bytes]) -> bool:
    """Whether a tar holds just these files; other bytes of gzip's that say the same are the same."""
    try:
        source = open_source(archive, max_size=sum(map(len, contents.values())))
        return (
            not source.problems
            and source.names == contents.keys()
            and all(source.read(name) == data for name, data in contents.items())
        )
    except ArtifactError:
        return False


def _refuse_other_folder(target: Path, contents: dict[str, bytes]) -> None:
    """Raise unless the existing version holds just what would be packaged now."""
    present = {path.name for path in target.iterdir()} if target.is_dir() else set()
    if present != contents.keys() or any((target / name).read_bytes() != data for name, data in contents.items()):
        raise _taken(target, target)


def _refuse_other_archive(archive: Path, target: Path, contents: dict[str, bytes]) -> None:
    """Raise if the tar exists and holds anything else than what would be packaged now."""
    if os.path.lexists(archive) and not _holds(archive, contents):
        raise _taken(archive, target)


def _taken(existing: Path, target: Path) -> VersionTakenError:
    following = _next_version(target)
    return VersionTakenError(
        f"{existing} exists with other bytes and is never changed. "
        f"The next free version is {following}: give VERSION={following} to the same make, "
        "or --version to ferry package."
    )


def _next_version(target: Path) -> str:
    """Count the last number of a version up until there is neither such a folder nor its tar."""
    folder, version = target.parent, target.name
    while (folder / version).exists() or (folder / (top_folder(folder.name, version) + SUFFIX)).exists():
        head, number = re.fullmatch(r"(.*?)(\d*)", version, re.DOTALL).groups()  # type: ignore[union-attr]
        version = f"{head}{int(number) + 1}" if number else f"{head}.1"
    return version


def _check_in_fresh_process(folder: Path) -> None:
    """Judge the packaged bytes where nothing of this process's memory can help them."""
    size = sum(path.stat().st_size for path in folder.iterdir())
    command = [sys.executable, "-m", "export.artifact.check", str(folder.absolute()), str(size)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise ArtifactError([f"the packaged files did not pass their check:\n{result.stderr.strip()}"])


def run_stage(run: Path, version: str, artifacts: Path) -> None:
    """Run the stage and tell a person what came of it."""
    packaged = package(run, version, artifacts)
    state = "is already packaged" if packaged.skipped else "is packaged"
    click.echo(f"package: {packaged.folder} {state}, with {packaged.archive.name} beside it")
