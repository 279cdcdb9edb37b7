"""Stage 2, export: the checkpoint in RUN/train becomes model.pt, model.onnx and model.pt2 in RUN/export."""

import sys
from dataclasses import dataclass
from pathlib import Path

if __name__ == "__main__":
    # Run as a file, imports would start in this folder, where `export` is another module.
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    from pipeline.cli import main

    main(["export", *sys.argv[1:]])

import click
from tqdm import tqdm

from export.errors import FerryError
from export.files import dump_json, new_folder, sha256_file
from export.produce import FORMATS, start_export
from export.profiles import PROFILES
from pipeline.cli import DEFAULT_PROFILE
from pipeline.run import (
    EXPORT_FOLDER,
    EXPORT_RECORD,
    TRAIN_FOLDER,
    TRAIN_RECORD,
    exclusive,
    export_inputs,
    is_current,
    read_record,
)


class ExportError(FerryError):
    """An exporter failed."""


@dataclass(frozen=True)
class Exported:
    """The result of the stage; `skipped` if the folder already held it."""

    folder: Path
    skipped: bool


def export(run: Path, profile: str = DEFAULT_PROFILE, *, show: bool = True) -> Exported:
    """Export the checkpoint of a run to every format, unless RUN/export already holds just that.

    Args:
        run: the run folder.
        profile: what the ONNX file is written for, a key of PROFILES.
        show: whether progress is shown.

    Raises:
        ValueError: if the run holds no whole checkpoint, or there is no such profile.
        ExportError: if an exporter failed; its last words are in the message.
        LockedError: if another process works in the run folder.
    """
    if profile not in PROFILES:
        raise ValueError(f"the profile must be one of {', '.join(PROFILES)}; got {profile}.")
    with exclusive(run):
        return _export(run, profile, show=show)


def _export(run: Path, profile: str, *, show: bool) -> Exported:
    trained = read_record(run, TRAIN_FOLDER, TRAIN_RECORD, stage="train")
    inputs = export_inputs(trained["files"], profile)
    folder = run / EXPORT_FOLDER
    if is_current(folder / EXPORT_RECORD, inputs):
        return Exported(folder, skipped=True)
    with new_folder(folder, replace=True, record=EXPORT_RECORD) as work:
        # Side by side: each is a process of its own.
        processes = {name: start_export(name, run / TRAIN_FOLDER, work, profile) for name in FORMATS}
        try:
            for name, process in tqdm(
                processes.items(), desc="export", unit="file", leave=False, disable=None if show else True
            ):
                output, _ = process.communicate()
                if process.returncode != 0:
                    raise ExportError(f"the export to {name} failed:\n{output.strip()}")
        finally:
            for process in processes.values():
                process.kill()
        files = {file_name: sha256_file(work / file_name) for file_name, _ in FORMATS.values()}
        (work / EXPORT_RECORD).write_text(dump_json({"inputs": inputs, "files": files}))
    return Exported(folder, skipped=False)


def run_stage(run: Path, profile: str) -> None:
    """Run the stage and tell a person what came of it."""
    exported = export(run, profile)
    if exported.skipped:
        click.echo(f"export: {exported.folder} is current")
        return
    sizes = [f"{name} {(exported.folder / name).stat().st_size / 1e6:.1f} MB" for name, _ in FORMATS.values()]
    click.echo(f"export: {exported.folder} holds {', '.join(sizes)}")
