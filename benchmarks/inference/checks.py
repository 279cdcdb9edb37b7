"""Correctness before speed: what answers wrongly is not timed."""

import copy
from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from benchmarks.inference.work import Batch
from export.errors import FerryError
from export.proof.runtimes import Array
from export.proof.tolerance import Tolerance

# How far int8 may be from eager PyTorch, as a share of the largest logit: random weights leave no accuracy to lose, so
# this only tells rounding from a wrong graph. The accuracy of trained weights is judged where they are quantised.
INT8_SHARE = 0.1


def check_ours(name: str, model: nn.Module, batch: Batch, logits: Array, *, int8: bool) -> None:
    """Compare one of our files with eager PyTorch on a batch.

    Raises:
        FerryError: if it is further from eager PyTorch in float64 than rounding explains.
    """
    ids, mask = torch.from_numpy(batch.ids), torch.from_numpy(batch.mask)
    with torch.inference_mode():
        eager = model(ids, mask).numpy()
        exact = copy.deepcopy(model).double()(ids, mask).numpy()
    largest = float(np.abs(exact).max())
    tolerance = Tolerance(eager_error=float(np.abs(eager - exact).max()), largest_logit=largest)
    limit = INT8_SHARE * largest if int8 else tolerance.limit
    error = float(np.abs(logits - exact).max()) if logits.shape == exact.shape else float("inf")
    if not error <= limit:
        rows, length = batch.ids.shape
        raise FerryError(
            f"{name} answers {rows} × {length} wrongly: {error:.3g} from eager PyTorch, where {limit:.3g} is allowed. "
            "Nothing was timed; run `ferry verify` on such a model."
        )


def check_peer(name: str, outputs: Sequence[Array], rows: int) -> None:
    """Refuse a peer that does not answer at all.

    Raises:
        FerryError: if there is not one finite vector for each row.
    """
    answered = sum(output.shape[0] for output in outputs)
    if answered != rows or not all(output.ndim == 2 and np.isfinite(output).all() for output in outputs):
        shapes = ", ".join(str(output.shape) for output in outputs)
        raise FerryError(f"{name} must answer {rows} rows with one finite vector each; got {shapes}.")
