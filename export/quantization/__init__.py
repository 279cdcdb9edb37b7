"""model_int8.onnx: an exported model whose matrix products are sums of integers, without any training.

FORMS holds the ways to write one. What calibration found stands in the file's metadata, and the file follows from that
and from model.onnx, to the byte.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from export.quantization.calibrate import Calibration, calibrate
from export.quantization.forms import DYNAMIC, FORMS, QDQ, STATIC
from export.quantization.scales import Range
from export.quantization.write import write_quantized

__all__ = [
    "DYNAMIC",
    "FORMS",
    "INT8",
    "PRECISION_KEY",
    "QDQ",
    "QUANTIZATION_KEY",
    "STATIC",
    "calibrate",
    "quantize",
    "requantize",
]

Ids = npt.NDArray[np.int64]

# What the metadata tells beside that of the float32 file.
PRECISION_KEY, QUANTIZATION_KEY = "precision", "quantization"
INT8 = "int8"


def quantize(model: bytes, batches: Iterable[tuple[Ids, Ids]], *, form: str) -> bytes:
    """Quantise the bytes of an ONNX file that Ferry exported.

    Args:
        model: the float32 file.
        batches: input ids and attention mask, (batch, sequence) int64 each, of rows of the training split; a form that
            is not calibrated reads none.
        form: a key of FORMS.

    Raises:
        ValueError: if there is no such form, the graph is not one of Ferry's, a weight or an activation is not finite,
            or calibration gets no row.
    """
    if form not in FORMS:
        raise ValueError(f"the form must be one of {', '.join(FORMS)}; got {form}.")
    found = calibrate(model, batches) if FORMS[form].calibrated else None
    return write_quantized(model, form, found.ranges if found else {}, _tell(form, found))


def requantize(model: bytes, told: Mapping[str, Any]) -> bytes:
    """Write a quantised file again from the float32 file and from what the metadata of the quantised one tells.

    Raises:
        ValueError: if what is told is not what `quantize` writes, or does not fit the model.
    """
    try:
        form, found = told["form"], None
        if form not in FORMS:
            raise ValueError(f"no form {form!r}")
        if FORMS[form].calibrated:
            ranges = {name: Range(*ends) for name, ends in told["ranges"].items()}
            rows, sha256 = told["calibration"]["rows"], told["calibration"]["sha256"]
            found = Calibration(ranges=ranges, rows=int(rows), sha256=_digest(sha256))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{error!r} in what the metadata tells of the quantisation") from None
    # Told anew, so that nothing else can stand there.
    return write_quantized(model, form, found.ranges if found else {}, _tell(form, found))


def _digest(text: str) -> str:
    if not re.fullmatch("[0-9a-f]{64}", text):
        raise ValueError(f"no SHA-256 of the rows of calibration: {text!a}")
    return text


def _tell(form: str, found: Calibration | None) -> dict[str, Any]:
    told: dict[str, Any] = {"form": form}
    if found is not None:
        told["calibration"] = {"rows": found.rows, "sha256": found.sha256}
        told["ranges"] = {name: [values.low, values.high] for name, values in found.ranges.items()}
    return {PRECISION_KEY: INT8, QUANTIZATION_KEY: told}
