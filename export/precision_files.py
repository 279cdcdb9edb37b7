"""The model files of other precisions: OPTIONAL_FILES, which a run or an artifact may hold beside model.onnx.

Each is a pure function of model.onnx and of what its own metadata tells. bfloat16 has none: ONNX Runtime has no kernels
of it on the CPU, and what can't be run can't be verified; PyTorch on a GPU runs the eager model in it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load, save

from export.half import write_half
from export.quantization import quantize, requantize
from export.tokenizer import pad_rows

Ids = npt.NDArray[np.int64]
Batches = Sequence[tuple[Ids, Ids]]

ONNX_FP16_FILE = "model_fp16.onnx"
ONNX_INT8_FILE = "model_int8.onnx"
# By the names that a person asks for.
PRECISION_FILES = {"fp16": ONNX_FP16_FILE, "int8": ONNX_INT8_FILE}
OPTIONAL_FILES = tuple(PRECISION_FILES.values())

# Ids of some rows of the training split, for calibration. Training leaves it in RUN/train; it is never packaged.
CALIBRATION_FILE = "calibration.safetensors"
CALIBRATION_ROWS = 512
_BATCH = 16
_IDS, _LENGTHS = "ids", "lengths"


def write_precision(precision: str, model: bytes, batches: Batches, *, form: str) -> bytes:
    """Write the file of a precision, a key of PRECISION_FILES.

    Args:
        precision: which one.
        model: the bytes of model.onnx.
        batches: what calibration runs, see `read_calibration`.
        form: a key of `export.quantization.FORMS`.

    Raises:
        ValueError: if the model can't be written so.
    """
    return quantize(model, batches, form=form) if precision == "int8" else write_half(model)


# How each file is written again from model.onnx and what its metadata tells of its quantisation.
REWRITE: dict[str, Callable[[bytes, Mapping[str, Any]], bytes]] = {
    ONNX_FP16_FILE: lambda model, _: write_half(model),
    ONNX_INT8_FILE: lambda model, told: requantize(model, told.get("quantization", {})),
}


def calibration_rows(rows: int) -> list[int]:
    """Choose CALIBRATION_ROWS of a split's rows, spread evenly; all of them if there are no more."""
    chosen = min(rows, CALIBRATION_ROWS)
    return [index * rows // chosen for index in range(chosen)]


def write_calibration(rows: Sequence[npt.NDArray[np.int32]]) -> bytes:
    """Write rows of ids as one file."""
    lengths = np.array([len(row) for row in rows], np.int32)
    return save({_IDS: np.concatenate(rows).astype(np.int32), _LENGTHS: lengths})


def read_calibration(data: bytes) -> Batches:
    """Read the file back as batches of input ids and attention mask, from the shortest rows to the longest.

    Raises:
        ValueError: if it is damaged.
    """
    try:
        arrays = load(data)
        ids, lengths = arrays[_IDS], arrays[_LENGTHS]
    except (SafetensorError, KeyError) as error:
        raise ValueError(f"{CALIBRATION_FILE} is damaged: {error}. Train again.") from None
    ends = np.cumsum(lengths)
    order = np.argsort(lengths, kind="stable")
    return [
        pad_rows([ids[ends[row] - lengths[row] : ends[row]] for row in order[first : first + _BATCH]])
        for first in range(0, len(order), _BATCH)
    ]
