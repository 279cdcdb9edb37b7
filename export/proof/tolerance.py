"""How far from float64 a float32 backend may be: a limit derived from PyTorch's own rounding error, not chosen.

For one run over many cases, with ref the float64 reference and e32 the largest error of eager float32 against it,

    limit = 4 · e32 + 4 · 2⁻²³ · max|ref|

A correct backend does the same arithmetic in another order, so its error is of the size of eager's: over 6
configurations error(ONNX Runtime) / error(eager) had a median of 1.05 to 1.5 and a maximum of 4.9. The second term is 4
units of rounding at the largest logit, for models whose eager error is small by luck. Against this limit a healthy
backend stands at 0.2, one weight × 1.01 at 2.7, weights rounded to half precision at 475. What moves the function by
less than rounding does, such as another LayerNorm epsilon, is the business of `graph_checks`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

ERROR_FACTOR = 4.0
FLOOR_ROUNDINGS = 4.0
ROUNDING = 2.0**-23
# Eager float32 itself must keep 13 of its 23 bits. A model that loses more would widen the limit until faults pass.
EAGER_ROUNDINGS = 1024.0


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """The limit of one run: `eager_error` and `largest_logit` are maxima over the run, in logits."""

    eager_error: float
    largest_logit: float

    @property
    def limit(self) -> float:
        """The largest error against float64 that a backend may have."""
        return ERROR_FACTOR * self.eager_error + FLOOR_ROUNDINGS * ROUNDING * self.largest_logit

    @property
    def eager_limit(self) -> float:
        """The largest error that eager float32, the source of the limit, may have itself."""
        return EAGER_ROUNDINGS * ROUNDING * self.largest_logit


def derive_tolerance(eager: Sequence[Array], reference: Sequence[Array]) -> Tolerance:
    """Derive the tolerance of a run from the outputs of eager float32 and of the float64 reference, case by case.

    Values that are not finite are left out here: `find_fault` refuses them on their own.
    """
    return Tolerance(
        eager_error=max((distance(a, b) for a, b in zip(eager, reference, strict=True)), default=0.0),
        largest_logit=max((_largest(np.abs(b)) for b in reference), default=0.0),
    )


def distance(actual: Array, expected: Array) -> float:
    """Return max |actual − expected| in float64 over the places where both are finite; 0 where no place is.

    Shapes that differ have no distance: it is infinite.
    """
    if actual.shape != expected.shape:
        return float("inf")
    with np.errstate(invalid="ignore"):
        return _largest(np.abs(actual.astype(np.float64) - expected.astype(np.float64)))


def find_fault(actual: Array, expected: Array, limit: float) -> str | None:
    """Say what is wrong with an output, or None.

    NaN and infinity never pass. Where the reference has them at the same places, the model is at fault and not the
    backend; the sentence says which.
    """
    if actual.shape != expected.shape:
        return f"shape {actual.shape}, wanted {expected.shape}"
    if not np.isfinite(actual).all() or not np.isfinite(expected).all():
        return _describe_non_finite(actual, expected)
    error = distance(actual, expected)
    if error > limit:
        return f"error {error:.2e}, limit {limit:.2e}"
    return None


def _describe_non_finite(actual: Array, expected: Array) -> str:
    bad = ~np.isfinite(actual)
    same = bool((bad == ~np.isfinite(expected)).all())
    where = "in the reference too" if same else "at other places than in the reference"
    if not bad.any():
        return f"finite, where {int((~np.isfinite(expected)).sum())} of {expected.size} values of the reference are not"
    first = tuple(int(i) for i in np.argwhere(bad)[0])
    return f"{int(bad.sum())} of {actual.size} values are not finite ({actual[first]} at {first}), {where}"


def _largest(values: Array) -> float:
    finite = values[np.isfinite(values)]
    return float(finite.max()) if finite.size else 0.0
