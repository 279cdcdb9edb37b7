"""Stage 2, export: the checkpoint in RUN/train becomes model files in RUN/export.

model.pt, model.onnx and model.pt2 always; model_fp16.onnx and model_int8.onnx where they are asked for.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # Run as a file, imports would start in this folder, where `export` is another module.
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    from pipeline.cli import main

    main(["export", *sys.argv[1:]])

import click
from tqdm import tqdm

from export.errors import FerryError
from export.files import dump_json, new_folder, sha256_file
from export.onnx_export import ONNX_FILE
from export.precision_files import CALIBRATION_FILE, PRECISION_FILES, read_calibration, write_precision
from export.produce import FORMATS, start_export
from export.profiles import DEFAULT_PROFILE, PROFILES
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


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is exported: a key of PROFILES, and beside float32 keys of PRECISION_FILES.

    `int8_form` is a key of FORMS that the profile allows; None is the profile's first.
    """

    profile: str = DEFAULT_PROFILE
    precisions: Sequence[str] = ()
    int8_form: str | None = None

    @property
    def form(self) -> str:
        """The form of int8, if that is asked for."""
        forms = PROFILES[self.profile].int8_forms
        return self.int8_form or (forms[0] if forms else "")

    def describe(self) -> dict[str, Any]:
        """Say what is asked, as the record has it.

        Raises:
            ValueError: if there is no such profile, or it does not allow the form of int8.
        """
        if self.profile not in PROFILES:
            raise ValueError(f"the profile must be one of {', '.join(PROFILES)}; got {self.profile}.")
        forms = PROFILES[self.profile].int8_forms
        if "int8" in self.precisions and not forms:
            raise ValueError(f"the profile {self.profile} has no int8: nothing there multiplies such files faster.")
        if "int8" in self.precisions and self.form not in forms:
            raise ValueError(f"int8 of the profile {self.profile} must be one of {', '.join(forms)}; got {self.form}.")
        forms_asked = {name: self.form if name == "int8" else name for name in sorted(set(self.precisions))}
        return {"profile": self.profile, "precisions": forms_asked}


def export(run: Path, asked: Asked = Asked(), *, show: bool = True) -> Exported:
    """Export the checkpoint of a run to every format, unless RUN/export already holds just that.

    Args:
        run: the run folder.
        asked: what is exported.
        show: whether progress is shown.

    Raises:
        ValueError: if the run holds no whole checkpoint, what is asked does not go together, or the weights can't be
            written in a precision.
        ExportError: if an exporter failed; its last words are in the message.
        LockedError: if another process works in the run folder.
    """
    with exclusive(run):
        return _export(run, asked, show=show)


def _export(run: Path, asked: Asked, *, show: bool) -> Exported:
    told = asked.describe()
    trained = read_record(run, TRAIN_FOLDER, TRAIN_RECORD, stage="train")
    inputs = export_inputs(trained["files"], told)
    folder = run / EXPORT_FOLDER
    if is_current(folder / EXPORT_RECORD, inputs):
        return Exported(folder, skipped=True)
    with new_folder(folder, replace=True, record=EXPORT_RECORD) as work:
        # Side by side: each is a process of its own.
        processes = {name: start_export(name, run / TRAIN_FOLDER, work, asked.profile) for name in FORMATS}
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
        model = (work / ONNX_FILE).read_bytes()
        calibration = read_calibration((run / TRAIN_FOLDER / CALIBRATION_FILE).read_bytes())
        for precision in told["precisions"]:
            file = work / PRECISION_FILES[precision]
            file.write_bytes(write_precision(precision, model, calibration, form=asked.form))
            files[file.name] = sha256_file(file)
        (work / EXPORT_RECORD).write_text(dump_json({"inputs": inputs, "files": files}))
    return Exported(folder, skipped=False)


def run_stage(run: Path, asked: Asked = Asked()) -> None:
    """Run the stage and tell a person what came of it."""
    exported = export(run, asked)
    if exported.skipped:
        click.echo(f"export: {exported.folder} is current")
        return
    names = [
        *(name for name, _ in FORMATS.values()),
        *(PRECISION_FILES[name] for name in asked.describe()["precisions"]),
    ]
    sizes = [f"{name} {(exported.folder / name).stat().st_size / 1e6:.1f} MB" for name in names]
    click.echo(f"export: {exported.folder} holds {', '.join(sizes)}")
