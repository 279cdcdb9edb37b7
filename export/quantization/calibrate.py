"""Calibration: the range of what every Linear takes, over some rows of the training split.

The range goes from the smallest to the largest value. Tried on the default model, 512 rows, static form: percentiles
99.9, 99.99 and 99.999, and the range of the least mean squared error, are as good on the validation split (accuracy
93.06 to 93.17 %, float32 93.11 %), and the largest error of a logit on the test split is 1.7 to 3.2 times as large. So
the simplest is taken. 64 to 2048 rows gave the same accuracy within 0.2 points.

Memory: what all Linears take of one batch.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort

from export.contract import ATTENTION_MASK, INPUT_IDS
from export.quantization.linears import find_linears
from export.quantization.scales import Range

Ids = npt.NDArray[np.int64]

# A range is told in so many digits: machines round sums differently, and the file should be the same on all of them.
_DIGITS = 4


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """The range of each Linear's input, by the Linear's name; how many rows were read, and a hash of them."""

    ranges: Mapping[str, Range]
    rows: int
    sha256: str


def calibrate(model: bytes, batches: Iterable[tuple[Ids, Ids]]) -> Calibration:
    """Run a model on batches of ids and mask, (batch, sequence) int64 each.

    Raises:
        ValueError: if there is no row, an activation is not finite, or the graph is not one of Ferry's.
    """
    proto = onnx.load_from_string(model)
    linears = find_linears(proto.graph)
    names = list(dict.fromkeys(linear.input for linear in linears))
    session = _open_with_outputs(proto, names)
    lows, highs = np.full(len(names), np.inf), np.full(len(names), -np.inf)
    rows, digest = 0, hashlib.sha256()
    for input_ids, attention_mask in batches:
        values = session.run(names, {INPUT_IDS: input_ids, ATTENTION_MASK: attention_mask})
        lows = np.minimum(lows, [value.min() for value in values])
        highs = np.maximum(highs, [value.max() for value in values])
        rows += len(input_ids)
        digest.update(repr(input_ids.shape).encode() + input_ids.tobytes() + attention_mask.tobytes())
    if not rows:
        raise ValueError("calibration needs rows of the training split; got none.")
    places = {name: place for place, name in enumerate(names)}
    ranges = {}
    for linear in linears:
        low, high = (float(f"{ends[places[linear.input]]:.{_DIGITS}g}") for ends in (lows, highs))
        try:
            ranges[linear.name] = Range(low, high)
        except ValueError as error:
            raise ValueError(f"what {linear.name} takes can't be quantised: {error}") from None
    return Calibration(ranges=ranges, rows=rows, sha256=digest.hexdigest())


def _open_with_outputs(proto: onnx.ModelProto, names: list[str]) -> ort.InferenceSession:
    """Open a model that gives these values beside its own output."""
    for name in names:
        proto.graph.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))
    options = ort.SessionOptions()
    # One order of every sum.
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
