"""PRECISIONS: how a model of each precision is judged.

float32, float16 and bfloat16 are judged by the distance to the float64 reference, with a limit that follows from what
eager PyTorch loses at that precision (`tolerance`). int8 is another function by design: it is judged by what it does to
the task and by the invariances, which it must keep as float32 does.
"""

from dataclasses import dataclass

import torch

FLOAT32 = "float32"
FLOAT16 = "float16"
BFLOAT16 = "bfloat16"
INT8 = "int8"


@dataclass(frozen=True, kw_only=True)
class Precision:
    """One row: what a precision is held to.

    `dtype` is that of the eager model from which the limit is derived, None where logits have no limit. `rounding` is
    the spacing of numbers at 1. `eager_roundings`: the error that eager itself may have, in roundings at the largest
    logit. `accuracy_loss`: by how much the accuracy on the test split may lie below eager float32's, a fraction of all
    answers; None where each label is compared instead. `cure`: what helps where an invariance is broken.
    """

    dtype: torch.dtype | None
    rounding: float
    eager_roundings: float
    accuracy_loss: float | None
    cure: str


PRECISIONS: dict[str, Precision] = {
    FLOAT32: Precision(
        dtype=torch.float32,
        rounding=2.0**-23,
        # Eager must keep 13 of its 23 bits. A model that loses more would widen the limit until faults pass.
        eager_roundings=1024.0,
        accuracy_loss=None,
        cure="an operator reads masked tokens or other rows: export again with this version of Ferry",
    ),
    FLOAT16: Precision(
        dtype=torch.float16,
        rounding=2.0**-10,
        # Eager must keep 5 of its 10 bits, for the same reason.
        eager_roundings=32.0,
        accuracy_loss=None,
        cure="a sum over masked tokens or other rows is rounded differently: use float32 for that operator",
    ),
    # No file has it; eager on a GPU does.
    BFLOAT16: Precision(
        dtype=torch.bfloat16,
        rounding=2.0**-7,
        # Eager must keep 3 of its 7 bits, for the same reason.
        eager_roundings=16.0,
        # Eight times float16's, as its roundings are.
        accuracy_loss=0.016,
        cure="a sum over masked tokens or other rows is rounded differently: use float32 for that operator",
    ),
    INT8: Precision(
        dtype=None,
        # Its logits are float32; only the products inside are integers.
        rounding=2.0**-23,
        eager_roundings=0.0,
        # What people accept for a model of a quarter of the size.
        accuracy_loss=0.005,
        cure="its scales are chosen from whatever stands in the batch: quantise statically, with calibrated scales",
    ),
}
