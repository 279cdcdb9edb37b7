"""How far from float64 a float32 backend may be: a limit derived from PyTorch's own rounding error, not chosen.

For one run over many cases, with ref the float64 reference and e32 the largest error of eager float32 against it,

    limit = 4 · e32 + 4 · 2⁻²³ · max|ref|

A correct backend does the same arithmetic in another order, so its error is of the size of eager's: over 240 models of
every part, size and kind of weights, error(ONNX Runtime) / error(eager) had a median of 1.0 and a maximum of 3.46. The
second term is 4 units of rounding at the largest logit, for models whose eager error is small by luck. Against this
limit correct backends stood at 0.2 in the median and at most 0.70 of the limit; with a factor of 3 that would have been
0.92, and with 2 a good model would have been refused. Eager itself stood at most at 0.57 of its own limit.

Planted faults, as multiples of the limit in the median, and the share of models that was refused: weights rounded to
half 323 (100 %), GELU by tanh 75.1 (100 %), any weight + 1e-3 21.1 (88 %), a largest weight × 1.01 72.7 (95 %),
LayerNorm epsilon 1e-6 0.261 (29 %). What moves the function by less than rounding does is the business of `checks`.

`make tolerance` measures all of this; benchmarks/results/tolerance.json has the figures, tolerance.png the histograms.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from export.proof.precision import FLOAT32, PRECISIONS

Array = npt.NDArray[Any]

ERROR_FACTOR = 4.0
FLOOR_ROUNDINGS = 4.0
# Relative errors of values that nearly vanish say nothing: those below a thousandth of the largest are left out.
_RELATIVE_FROM = 1e-3


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """The limit of one run: `eager_error` and `largest_logit` are maxima over the run, in logits."""

    eager_error: float
    largest_logit: float
    precision: str = FLOAT32

    @property
    def limit(self) -> float:
        """The largest error against float64 that a backend may have."""
        rounding = PRECISIONS[self.precision].rounding
        return ERROR_FACTOR * self.eager_error + FLOOR_ROUNDINGS * rounding * self.largest_logit

    @property
    def eager_limit(self) -> float:
        """The largest error that eager, the source of the limit, may have itself."""
        row = PRECISIONS[self.precision]
        return row.eager_roundings * row.rounding * self.largest_logit

    def widest(self, other: "Tolerance") -> "Tolerance":
        """Return the tolerance of two runs of one precision together."""
        return Tolerance(
            eager_error=max(self.eager_error, other.eager_error),
            largest_logit=max(self.largest_logit, other.largest_logit),
            precision=self.precision,
        )


def derive_tolerance(eager: Sequence[Array], reference: Sequence[Array], *, precision: str = FLOAT32) -> Tolerance:
    """Derive the tolerance of a run from the outputs of eager, in a precision, and of the reference, case by case.

    Values that are not finite are left out here: `find_fault` refuses them on their own.
    """
    return Tolerance(
        eager_error=max((distance(a, b) for a, b in zip(eager, reference, strict=True)), default=0.0),
        largest_logit=max((_largest(np.abs(b)) for b in reference), default=0.0),
        precision=precision,
    )


@dataclass(frozen=True, kw_only=True)
class Distances:
    """How far a backend's outputs of a run lie from the reference's, over all values that are finite in both.

    `max_abs` and `p99`, the 99th percentile, are in logits; `max_rel` is relative to the reference's value; `cosine` is
    the smallest between two rows of logits; `argmax_agreement` the share of rows with the same best logit.
    """

    max_abs: float
    max_rel: float
    p99: float
    cosine: float
    argmax_agreement: float


def measure(actual: Sequence[Array], expected: Sequence[Array]) -> Distances:
    """Measure the outputs of a run, case by case; those of another shape than expected are left out."""
    pairs = [(a, b) for a, b in zip(actual, expected, strict=True) if a.shape == b.shape and b.size]
    if not pairs:
        return Distances(max_abs=0.0, max_rel=0.0, p99=0.0, cosine=1.0, argmax_agreement=1.0)
    got = np.concatenate([a.reshape(-1, a.shape[-1]).astype(np.float64) for a, _ in pairs])
    wanted = np.concatenate([b.reshape(-1, b.shape[-1]).astype(np.float64) for _, b in pairs])
    finite = np.isfinite(got).all(axis=1) & np.isfinite(wanted).all(axis=1)
    got, wanted = got[finite], wanted[finite]
    errors = np.abs(got - wanted)
    sizes = np.abs(wanted)
    large = sizes > _RELATIVE_FROM * _largest(sizes)
    norms = np.linalg.norm(got, axis=1) * np.linalg.norm(wanted, axis=1)
    # A row of zeros, as at padding, has no direction.
    cosines = ((got * wanted).sum(axis=1)[norms > 0] / norms[norms > 0]).clip(-1, 1)
    return Distances(
        max_abs=_largest(errors),
        max_rel=_largest(errors[large] / sizes[large]),
        p99=float(np.percentile(errors, 99)) if errors.size else 0.0,
        cosine=float(cosines.min()) if cosines.size else 1.0,
        argmax_agreement=float((got.argmax(axis=1) == wanted.argmax(axis=1)).mean()) if len(got) else 1.0,
    )


def distance(actual: Array, expected: Array) -> float:
    """Return max |actual − expected| in float64 over the places where both are finite; 0 where no place is.

    Shapes that differ have no distance: it is infinite.
    """
    if actual.shape != expected.shape:
        return float("inf")
    with np.errstate(invalid="ignore"):
        return _largest(np.abs(actual.astype(np.float64) - expected.astype(np.float64)))


def find_fault(actual: Array, expected: Array, limit: float | None) -> str | None:
    """Say what is wrong with an output, or None; a limit of None allows every finite distance.

    NaN and infinity never pass. Where the reference has them at the same places, the model is at fault and not the
    backend; the sentence says which.
    """
    if actual.shape != expected.shape:
        return f"shape {actual.shape}, wanted {expected.shape}"
    if not np.isfinite(actual).all() or not np.isfinite(expected).all():
        return _describe_non_finite(actual, expected)
    error = distance(actual, expected)
    if limit is not None and error > limit:
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
