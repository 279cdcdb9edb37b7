"""The run folder: one sub-folder a stage, each with a record of what it was made from."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from export.artifact.layout import TOLD_FILES
from export.contract import TOKENIZER_CONFIG_FILE, TOKENIZER_FILE, TOKENIZER_JSON_FILE, canonical_json
from export.files import read_json, recover_folder, sha256_bytes, sha256_file
from export.model import CONFIG_FILE, WEIGHTS_FILE
from export.onnx_export import ONNX_FILE
from export.precision_files import CALIBRATION_FILE, OPTIONAL_FILES
from export.pt2 import PT2_FILE
from export.torchscript import TORCHSCRIPT_FILE
from pipeline.data.test_split import TEST_SPLIT_FILE
from pipeline.lock import locked

ROOT = Path(__file__).resolve().parent.parent

TRAIN_FOLDER, TRAIN_RECORD = "train", "train.json"
EXPORT_FOLDER, EXPORT_RECORD = "export", "export.json"
VERIFY_FOLDER, VERIFY_RECORD = "verify", "verification.json"
# Code, and what the page of a proof is made of.
SOURCE_SUFFIXES = (".py", ".html", ".css", ".js")
# An unfinished training.
CHECKPOINT_FOLDER = "checkpoint"

# The files that the record of a stage lists, each with its hash.
STAGE_FILES = {
    TRAIN_RECORD: {
        *(CONFIG_FILE, WEIGHTS_FILE, TOKENIZER_FILE, TOKENIZER_JSON_FILE, TOKENIZER_CONFIG_FILE),
        *TOLD_FILES,
        TEST_SPLIT_FILE,
        CALIBRATION_FILE,
    },
    EXPORT_RECORD: {TORCHSCRIPT_FILE, ONNX_FILE, PT2_FILE},
}
# Those that it may list beside.
_MAY_LIST = {TRAIN_RECORD: set[str](), EXPORT_RECORD: {*OPTIONAL_FILES}}


@contextmanager
def exclusive(run: Path) -> Iterator[None]:
    """Be the only stage that writes into the run folder, and clear what killed ones left there.

    Packaging takes no lock: it only reads, and each of its bytes is bound by hash to one verification, so that a stage
    that writes meanwhile can make it refuse but never err; and it need not wait for a long training to end.

    Raises:
        LockedError: if another process works in the folder.
        FerryError: if the folder can't be written.
        ValueError: if `run` is no folder.
    """
    with locked(run):
        for folder in (TRAIN_FOLDER, EXPORT_FOLDER, VERIFY_FOLDER):
            recover_folder(run / folder)
        yield


def export_inputs(checkpoint: dict[str, str], asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an export is a function of: the hashes of the checkpoint's files, the code, and what was asked."""
    return {**checkpoint, "source": source_hash(), "asked": asked}


def is_current(record_file: Path, inputs: Mapping[str, Any]) -> bool:
    """Whether a stage's record says these inputs, and every file that it lists still has the bytes it had."""
    if not record_file.is_file():
        return False
    try:
        record = _parse_record(record_file)
    except ValueError:
        # A damaged record says nothing; the stage makes it anew.
        return False
    return record.get("inputs") == inputs and not changed_files(record_file.parent, record["files"])


def _parse_record(path: Path) -> dict[str, Any]:
    record = read_json(path)
    files = record.get("files") if isinstance(record, dict) else None
    if not isinstance(files, dict) or set(files) - _MAY_LIST[path.name] != STAGE_FILES[path.name]:
        raise ValueError(f"{path} is not a record of Ferry's: it does not list the files of its stage.")
    return dict(record)


def changed_files(folder: Path, hashes: dict[str, str]) -> list[str]:
    """Return the names of the files that are missing or do not have the hash given for them."""
    return [
        name for name, sha256 in hashes.items() if not (folder / name).is_file() or sha256_file(folder / name) != sha256
    ]


def read_record(run: Path, folder: str, record: str, *, stage: str) -> dict[str, Any]:
    """Read the record of an earlier stage after checking the files that it lists.

    Raises:
        ValueError: if the stage was not run or its files were changed since; the message says what to run.
    """
    path = run / folder / record
    if not path.is_file():
        raise ValueError(f"{run / folder} holds no result of the stage {stage}. Run `ferry {stage} --run {run}` first.")
    try:
        document = _parse_record(path)
    except ValueError as error:
        raise ValueError(f"{error} Run `ferry {stage} --run {run}` again.") from None
    changed = changed_files(path.parent, document["files"])
    if changed:
        raise ValueError(
            f"{run / folder} was changed after the stage {stage}: {', '.join(changed)}. "
            f"Run `ferry {stage} --run {run}` again."
        )
    return document


def record_hash(trained: dict[str, Any]) -> str:
    """Return a hash over what an artifact repeats from the record of training: all but its clock values.

    Raises:
        ValueError: if the record lacks a part.
    """
    try:
        told = {key: trained[key] for key in ("name", "config", "data", "metrics", "golden_texts", "files")}
    except KeyError as missing:
        raise ValueError(f"{TRAIN_RECORD} was damaged: {missing} is missing. Run `ferry train` again.") from None
    return sha256_bytes(canonical_json(told).encode())


def source_hash() -> str:
    """Return one hash over the code that decides what an export holds, and how its proof looks: models/ and export/."""
    files = sorted(
        path for room in ("models", "export") for path in (ROOT / room).rglob("*") if path.suffix in SOURCE_SUFFIXES
    )
    return sha256_bytes(
        "".join(f"{path.relative_to(ROOT).as_posix()} {sha256_file(path)}\n" for path in files).encode()
    )
