"""The trained model in every precision that the CPU runs: how many answers are right, and how long a batch takes."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.inference.describe import title_of
from benchmarks.inference.ours import FLOAT32, INT8
from benchmarks.inference.sessions import Model, SessionReady
from benchmarks.inference.work import Batch
from benchmarks.parts import Table
from export.contract import NO_ANSWER
from export.precision_files import CALIBRATION_FILE, read_calibration, write_precision
from export.proof.f1 import macro_f1
from export.proof.runtimes import Ids
from export.quantization import FORMS

HALF_PRECISION = "ferry-fp16"


def write_precisions(model: bytes, train: Path) -> dict[str, bytes]:
    """Write an exported model in half precision, and in each form of integers.

    Args:
        model: the bytes of model.onnx.
        train: the folder of its training, for the rows of calibration.

    Raises:
        ValueError: if the model can't be written so.
        OSError: if the folder has no such rows.
    """
    batches = read_calibration((train / CALIBRATION_FILE).read_bytes())
    integers = {f"{INT8}-{form}": write_precision("int8", model, batches, form=form) for form in FORMS}
    return {HALF_PRECISION: write_precision("fp16", model, batches, form=""), **integers}


def precision_rows(
    files: Mapping[str, bytes], batches: Sequence[Batch], targets: Sequence[Ids], seconds: Mapping[str, Sequence[float]]
) -> list[dict[str, Any]]:
    """One row a precision: accuracy and macro-F1 (0 … 1), megabytes, and the median milliseconds of a batch.

    Args:
        files: float32's under FLOAT32, and the others'.
        batches: what each answers.
        targets: of each batch the right labels, (B,) or (B, T), NO_ANSWER where none is asked for.
        seconds: of passes over all batches, by the same names.
    """
    asked = [part != NO_ANSWER for part in targets]
    expected = np.concatenate([part[where] for part, where in zip(targets, asked, strict=True)])
    rows = []
    for name, data in files.items():
        logits = SessionReady.of_batches(Model(data), batches).outputs()
        predicted = np.concatenate([part.argmax(axis=-1)[where] for part, where in zip(logits, asked, strict=True)])
        rows.append(
            {
                "name": "float32" if name == FLOAT32 else title_of(name).removeprefix("Ferry "),
                "accuracy": float((predicted == expected).mean()),
                "macro_f1": macro_f1(predicted, expected),
                "megabytes": len(data) / 1e6,
                "latency": 1e3 * float(np.median(seconds[name])) / len(batches),
            }
        )
    return rows


def precision_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    lines = [
        [
            row["name"],
            *(f"{100 * row[key]:.2f} %" for key in ("accuracy", "macro_f1")),
            *(f"{row[key]:.2f}" for key in ("megabytes", "latency")),
        ]
        for row in rows
    ]
    return Table(
        title="The trained model in each precision, on its test split",
        columns=["", "accuracy", "macro-F1", "MB", "milliseconds a batch of 32"],
        rows=lines,
    )
