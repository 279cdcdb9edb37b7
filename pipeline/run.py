"""The run folder: one sub-folder a stage, each with a record of what it was made from."""

from pathlib import Path
from typing import Any

from export.files import read_json, sha256_bytes, sha256_file

ROOT = Path(__file__).resolve().parent.parent

TRAIN_FOLDER, TRAIN_RECORD = "train", "train.json"
EXPORT_FOLDER, EXPORT_RECORD = "export", "export.json"
VERIFY_FOLDER, VERIFY_RECORD = "verify", "verification.json"


def is_current(record_file: Path, inputs: dict[str, str]) -> bool:
    """Whether a stage's record says these inputs, and every file that it lists still has the bytes it had."""
    if not record_file.is_file():
        return False
    record = read_json(record_file)
    return record.get("inputs") == inputs and not changed_files(record_file.parent, record["files"])


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
    document: dict[str, Any] = read_json(path)
    changed = changed_files(path.parent, document["files"])
    if changed:
        raise ValueError(
            f"{run / folder} was changed after the stage {stage}: {', '.join(changed)}. "
            f"Run `ferry {stage} --run {run}` again."
        )
    return document


def source_hash() -> str:
    """Return one hash over the code that decides what an export holds: every module of models/ and export/."""
    files = sorted(path for room in ("models", "export") for path in (ROOT / room).rglob("*.py"))
    return sha256_bytes(
        "".join(f"{path.relative_to(ROOT).as_posix()} {sha256_file(path)}\n" for path in files).encode()
    )
