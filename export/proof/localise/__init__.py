"""The first guilty layer: the values inside a shipped file, one by one, against eager's in float64.

Judged is the file itself, not a copy made from the checkpoint: such a twin would lack the file's fault. Each value has
a limit of its own, derived as that of the logits is (`tolerance`), from the error of the eager model of the file's
precision at that point. The first point in eager's order whose value lies beyond its limit is guilty.

Wrong output, good input: the module itself is named. Wrong input: named is the module that made it, or, if it made it
well or nobody knows who did, the one that handed it on, such as the block whose residual is wrong.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from torch import fx

from export.contract import LOGITS
from export.proof.cases import Case
from export.proof.localise.eager_values import EagerValue, trace_eager
from export.proof.localise.onnx_values import onnx_points
from export.proof.localise.points import (
    GIVES,
    LOGITS_POINT,
    ROOT,
    Array,
    Found,
    Point,
    StoppedError,
    bring_to,
    known_path,
)
from export.proof.localise.pt2_values import pt2_points
from export.proof.localise.torchscript_values import torchscript_points
from export.proof.parity import BASELINES
from export.proof.precision import PRECISIONS
from export.proof.runtimes import BACKENDS, BackendError, Read, Runtime, load_eager_model
from export.proof.runtimes.onnx_runtime import OnnxRuntime
from export.proof.tolerance import derive_tolerance, distance
from export.pt2 import PT2_FILE, load_pt2
from export.torchscript import TORCHSCRIPT_FILE


@dataclass(frozen=True, kw_only=True)
class Culprit:
    """The first module whose value in the file lies beyond its limit.

    `module` is its path, or `logits` where only the answer is wrong; `operator` is the one of the file that made the
    wrong value. `distance` is the largest error, None where there is nothing to compare: an error, another shape, NaN;
    `budget` is the limit.
    """

    module: str
    operator: str
    distance: float | None
    budget: float


Look = Callable[[Case, Mapping[Point, Array]], Mapping[Point, Found]]


def find_culprit(
    read: Read, runtime: Runtime, cases: Sequence[Case], companions: Sequence[Case] = ()
) -> Culprit | None:
    """Look for the first wrong value inside the file of a backend.

    Args:
        read: gives the bytes of a file by its name.
        runtime: the backend that failed.
        cases: inputs that it fails on; the first that shows a wrong value inside is taken.
        companions: other inputs. The limits come from all: on a small input alone, eager may be exact by luck.

    Returns:
        None if the file has no inside to look at, the precision has no limits, or no value lies beyond its limit.

    Raises:
        BackendError: if the eager model can't run a case.
    """
    dtype = PRECISIONS[runtime.precision].dtype
    file = next((backend.file for backend in BACKENDS if backend.name == runtime.name), None)
    # The eager model of a precision runs only where there is such a file, and is not that file.
    if dtype is None or file is None or runtime.name in BASELINES.values():
        return None
    model = load_eager_model(read).to(dtype)
    modules = frozenset(path for path, _ in model.named_modules(remove_duplicate=False))
    reference = load_eager_model(read).double()
    everyone = [*cases, *companions]
    rounded = [{value.point: value.value for value in trace_eager(model, case)} for case in everyone]
    exact = [trace_eager(reference, case) for case in everyone]
    limits = _derive_limits(rounded, exact, runtime.precision)
    for look in _looks(file, read(file), runtime, modules):
        for case, values in zip(cases, exact, strict=False):
            wanted = {value.point: value.value for value in values}
            try:
                culprit = _first_fault(values, limits, _at_known_paths(look(case, wanted), modules))
            except StoppedError as stop:
                module = known_path(stop.module, modules) or stop.module
                culprit = Culprit(module=module, operator=stop.operator, distance=None, budget=0.0)
            except BackendError:
                culprit = None
            if culprit is not None:
                return culprit
    return None


def _looks(file: str, data: bytes, runtime: Runtime, modules: frozenset[str]) -> Iterator[Look]:
    """Yield the ways to look into a file, the truest first."""
    if file == TORCHSCRIPT_FILE:
        yield lambda case, _: torchscript_points(data, case)
    elif file == PT2_FILE:
        module, _ = load_pt2(data)
        assert isinstance(module, fx.GraphModule)
        yield partial(pt2_points, module, modules=modules)
    elif file.endswith(".onnx"):
        yield partial(onnx_points, data, modules=modules)
        if isinstance(runtime, OnnxRuntime):
            # What an optimisation breaks is seen at its own level only, if the added outputs do not forbid it.
            yield partial(onnx_points, data, modules=modules, level=runtime.level, provider=runtime.provider)


def _derive_limits(
    rounded: Sequence[Mapping[Point, Array]], exact: Sequence[Sequence[EagerValue]], precision: str
) -> dict[Point, float]:
    """Derive the limit of every point; what is no real number must be equal."""
    by_point: dict[Point, list[tuple[Array, Array]]] = {}
    for mine, values in zip(rounded, exact, strict=True):
        for value in values:
            by_point.setdefault(value.point, []).append((mine[value.point], value.value))
    return {
        point: derive_tolerance([a for a, _ in pairs], [b for _, b in pairs], precision=precision).limit
        if pairs[0][1].dtype.kind == "f"
        else 0.0
        for point, pairs in by_point.items()
    }


def _at_known_paths(found: Mapping[Point, Found], modules: frozenset[str]) -> dict[Point, Found]:
    """Bring the points of a module that was put inside another back to the paths of the eager model."""
    known = {point: value for point, value in found.items() if point.module in modules}
    for point, value in found.items():
        path = known_path(point.module, modules)
        if path is not None:
            known.setdefault(point._replace(module=path), value)
    return known


def _first_fault(
    values: Sequence[EagerValue], limits: Mapping[Point, float], found: Mapping[Point, Found]
) -> Culprit | None:
    seen = [value for value in values if value.point in found]
    errors = {value.point: _error(bring_to(found[value.point].value, value.value.shape), value.value) for value in seen}
    good = {point for point, error in errors.items() if error is not None and error <= limits[point]}
    sound = {value.tensor for value in seen if value.leaf and value.point in good}
    for value in seen:
        # The borders of a module that holds others are unsure where nodes have lost their names.
        misread = not value.leaf and value.tensor in sound and value.point != LOGITS_POINT
        if value.point not in good and not misread:
            return Culprit(
                module=_blame(value, good),
                operator=found[value.point].operator,
                distance=errors[value.point],
                budget=limits[value.point],
            )
    return None


def _error(actual: Array, wanted: Array) -> float | None:
    """Return the distance of two values; None if they differ in shape or in where they are finite."""
    if actual.shape != wanted.shape or (np.isfinite(actual) != np.isfinite(wanted)).any():
        return None
    return distance(actual, wanted)


def _blame(value: EagerValue, good: set[Point]) -> str:
    """Name the module that a wrong value is to be laid to, given the points that were found good."""
    if value.point.side == GIVES:
        return value.point.module if value.point.module != ROOT else LOGITS
    if value.maker is not None and value.maker not in good:
        return value.maker.module
    return value.outer or value.point.module
