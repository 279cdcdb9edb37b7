"""Points of a flat graph whose nodes know their modules: what a module's nodes read from outside, and what they give.

ONNX and .pt2 are such graphs. A module that the graph does not name has no points there.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from export.node_names import is_inside
from export.proof.localise.points import (
    FORWARD,
    GIVES,
    LOGITS_POINT,
    TAKES,
    Array,
    Found,
    Point,
    known_path,
    same_axes,
    same_kind,
)

# ONNX's operators that change no number and no order.
_RESHAPES = frozenset({"Identity", "Reshape", "Squeeze", "Unsqueeze"})

# It reads a condition, and what its branches give.
_CHOICE = "If"


@dataclass(frozen=True, kw_only=True)
class GraphNode:
    """A node of a flat graph; `module` is None where nothing tells for whom it computes."""

    module: str | None
    operator: str
    reads: tuple[str, ...]
    makes: tuple[str, ...]


def named_module(given: str | None, tensors: Iterable[str], modules: frozenset[str]) -> str | None:
    """Say for which module a node computes: the one that the graph names, else the owner of a weight that it reads.

    Args:
        given: the module that the graph names, if it does.
        tensors: the names of what the node reads; weights have those of the state dict.
        modules: the paths that there are.
    """
    paths = [*([] if given is None else [given]), *(name.rpartition(".")[0] for name in tensors)]
    known = (known_path(path, modules) for path in paths if path)
    return next((path for path in known if path is not None), None)


def graph_points(
    nodes: Sequence[GraphNode],
    outputs: Sequence[str],
    wanted: Mapping[Point, Array],
    compute: Callable[[list[str]], Mapping[str, Array]],
) -> dict[Point, Found]:
    """Find the values of a graph at the points of the eager model.

    Several values may cross a module's border. They may be parts of eager's, computed apart; else the one that is
    looked for has the type and the shape of eager's; if none has, then the last that leaves, or the only one that comes
    in, so that a wrong shape is found too.

    Args:
        nodes: in the order of execution.
        outputs: the names of the graph's outputs.
        wanted: eager's values.
        compute: runs the graph and returns the values of these names, as far as there are any.
    """
    makers = {name: node for node in nodes for name in node.makes}
    candidates = {LOGITS_POINT: list(outputs[:1])}
    for point in wanted:
        if point.method == FORWARD and point.module and _called_once(point, wanted):
            candidates[point] = _leaving(nodes, outputs, point) if point.side == GIVES else _entering(nodes, point)
    values = compute(sorted({name for names in candidates.values() for name in names if name in makers}))
    found = {}
    for point, names in candidates.items():
        there = [name for name in names if name in values]
        joined = _join(there, values, wanted[point]) if point.side == GIVES else None
        name = _choose(there, values, wanted[point], point.side)
        if joined is not None:
            found[point] = Found(joined, _operator(makers, there[-1]))
        elif name is not None:
            found[point] = Found(values[name], _operator(makers, name))
    return found


def _operator(makers: Mapping[str, GraphNode], name: str) -> str:
    """Say what computed a value: not what gave it another shape afterwards, if its module did both."""
    node = makers[name]
    while node.operator in _RESHAPES or node.operator == _CHOICE:
        before = makers.get(node.reads[1 if node.operator == _CHOICE else 0])
        if before is None or before.module != node.module:
            break
        node = before
    return node.operator


def _called_once(point: Point, wanted: Mapping[Point, Array]) -> bool:
    return point._replace(number=1, side=GIVES) not in wanted and point.number == 0


def _entering(nodes: Sequence[GraphNode], point: Point) -> list[str]:
    inside = [node for node in nodes if node.module is not None and is_inside(node.module, point.module)]
    made = {name for node in inside for name in node.makes}
    return list(dict.fromkeys(name for node in inside for name in node.reads if name not in made))


def _leaving(nodes: Sequence[GraphNode], outputs: Sequence[str], point: Point) -> list[str]:
    made: list[str] = []
    read = set(outputs)
    for node in nodes:
        if node.module is not None and is_inside(node.module, point.module):
            made += node.makes
        else:
            read.update(node.reads)
    return [name for name in made if name in read]


def _join(names: list[str], values: Mapping[str, Array], wanted: Array) -> Array | None:
    """Put parts side by side, if there are several and that gives the shape of eager's value."""
    parts = [values[name] for name in names if same_kind(values[name].dtype, wanted.dtype)]
    if len(parts) < 2 or len({part.shape for part in parts}) != 1 or parts[0].ndim == 0:
        return None
    joined = np.concatenate(parts, axis=-1)
    return joined if same_axes(joined.shape, wanted.shape) else None


def _choose(names: list[str], values: Mapping[str, Array], wanted: Array, side: str) -> str | None:
    alike = [name for name in names if same_kind(values[name].dtype, wanted.dtype)]
    fitting = [name for name in alike if same_axes(values[name].shape, wanted.shape)]
    if side == TAKES:
        return fitting[0] if fitting else alike[0] if len(alike) == 1 else None
    return next(reversed(fitting or alike), None)
