"""ONNX's own reference evaluator as a backend: plain numpy, no code shared with ONNX Runtime."""

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from export.contract import ATTENTION_MASK, INPUT_IDS
from export.onnx_export import ONNX_FILE, read_onnx
from export.proof.runtimes.base import Array, BackendError, Ids, Read, Runtime, last_line

# Its operators may fail in many ways; numpy's and its own errors have no base class in common.
_ERRORS = (
    ArithmeticError,
    AttributeError,
    KeyError,
    IndexError,
    NotImplementedError,
    RuntimeError,
    TypeError,
    ValueError,
    onnx.checker.ValidationError,
)


class OnnxReference(Runtime):
    """The ONNX file, evaluated operator by operator as the standard defines them."""

    name = "onnx-reference"
    # Its GatherElements takes no more than 64 elements of an axis.
    longest = 64
    # Plain numpy is slow, and the test split would show no operator that the grid does not.
    grid_only = True

    def __init__(self, read: Read) -> None:
        """Parse the file.

        Raises:
            BackendError: if it is damaged or holds an operator that the evaluator lacks.
        """
        try:
            self._evaluator = ReferenceEvaluator(read_onnx(read(ONNX_FILE)))
        except _ERRORS as error:
            raise BackendError(last_line(error)) from error

    def run(self, input_ids: Ids, attention_mask: Ids) -> Array:
        """See `Runtime`."""
        try:
            with np.errstate(all="ignore"):
                (logits,) = self._evaluator.run(None, {INPUT_IDS: input_ids, ATTENTION_MASK: attention_mask})
        except _ERRORS as error:
            raise BackendError(last_line(error)) from error
        if not isinstance(logits, np.ndarray):
            raise BackendError(f"the output must be one array; got {type(logits).__name__}")
        return logits
