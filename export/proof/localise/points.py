"""Points: the places in a model where a value can be looked at, named alike in eager PyTorch and in every file."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from export.proof.runtimes.base import BackendError

Array = npt.NDArray[Any]

TAKES = "takes"
GIVES = "gives"
FORWARD = "forward"
# The call of the whole model; what it gives are the logits.
ROOT = ""


class Point(NamedTuple):
    """What the call of a module takes first, or what it gives.

    `module` is its path from the root, `method` is `forward` but for a position's verbs and `encode`, `number` tells
    which call of it. `side` is TAKES or GIVES.
    """

    module: str
    method: str
    number: int
    side: str


LOGITS_POINT = Point(ROOT, FORWARD, 0, GIVES)


@dataclass(frozen=True)
class Found:
    """A value in a model file, and the operator of that file that made it."""

    value: Array
    operator: str


class StoppedError(BackendError):
    """A file stopped inside: `module` is the one that it was in, `operator` what failed."""

    def __init__(self, reason: str, module: str, operator: str) -> None:
        super().__init__(reason)
        self.module = module
        self.operator = operator


def known_path(path: str, modules: frozenset[str]) -> str | None:
    """Return the longest end of a module's path that is one of these, None if there is none.

    A model that was put inside another goes by longer paths.
    """
    parts = path.split(".")
    return next((name for name in (".".join(parts[i:]) for i in range(len(parts))) if name in modules), None)


def same_axes(left: tuple[int, ...], right: tuple[int, ...]) -> bool:
    """Whether two shapes are equal up to leading axes of one element: graphs may work on (1, N, C) for (N, C)."""
    return _bare(left) == _bare(right)


def bring_to(value: Array, shape: tuple[int, ...]) -> Array:
    """Give an array a shape that it has up to leading axes of one element; any other stays as it is."""
    return value.reshape(shape) if same_axes(value.shape, shape) else value


def same_kind(left: np.dtype[Any], right: np.dtype[Any]) -> bool:
    """Whether both types hold real numbers, or both integers or truth values."""
    return {left.kind, right.kind} <= {"f"} or {left.kind, right.kind} <= {"i", "u", "b"}


def _bare(shape: tuple[int, ...]) -> tuple[int, ...]:
    while shape and shape[0] == 1:
        shape = shape[1:]
    return shape
