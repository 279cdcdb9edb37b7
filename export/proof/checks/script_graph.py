"""The graph of a TorchScript file as checks look at it: inlined, with branches that its own constants decide removed.

This is private ground of PyTorch's (`torch._C`); all use of it for the checks stands here.
"""

from collections.abc import Iterator
from typing import Any

import torch

# Passes that change no answer.
_SIMPLIFY = (
    torch._C._jit_pass_peephole,
    torch._C._jit_pass_constant_propagation,
    torch._C._jit_pass_dce,
)


class _Computed:
    def __repr__(self) -> str:
        return "computed"


COMPUTED = _Computed()


class ScriptGraph:
    """The inlined graph of `forward`.

    `nodes` are in program order, with those of blocks; `whole` is the same before anything was removed.
    """

    def __init__(self, module: torch.jit.ScriptModule) -> None:
        """Take a loaded module."""
        self.module = module
        # A graph must outlive the nodes and values that are read from it.
        self.whole: Any = module.inlined_graph
        self.graph: Any = self.whole.copy()
        for simplify in _SIMPLIFY:
            simplify(self.graph)
        self.nodes: list[Any] = list(walk(self.graph))

    def of_kind(self, kind: str) -> list[Any]:
        return [node for node in self.nodes if node.kind() == kind]

    def path(self, value: Any) -> str | None:
        """Return the dotted name that a value is read from (encoder.norm.weight), None for a computed one."""
        names: list[str] = []
        while value.node().kind() == "prim::GetAttr":
            names.append(value.node().s("name"))
            value = next(value.node().inputs())
        is_self = value.node().kind() == "prim::Param" and value.type().kind() == "ClassType"
        return ".".join(reversed(names)) if is_self else None

    def constant(self, value: Any) -> Any:
        """Return the plain value that a value always has, as a constant or as an attribute of a module; else COMPUTED.

        A list is returned with each of its parts.
        """
        kind = value.node().kind()
        if kind == "prim::ListConstruct":
            return [self.constant(part) for part in value.node().inputs()]
        if kind == "prim::Constant":
            return value.toIValue()
        path = self.path(value)
        found = self.attribute(path) if path else COMPUTED
        return found if isinstance(found, (bool, int, float, str)) else COMPUTED

    def attribute(self, path: str) -> Any:
        """Return what stands in the loaded module under a dotted name."""
        found: Any = self.module._c
        for name in path.split("."):
            found = found.getattr(name)
        return found


def walk(block: Any) -> Iterator[Any]:
    """Yield the nodes of a graph or block in order, each before those of its own blocks."""
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from walk(inner)


def arguments_of(node: Any) -> dict[str, Any]:
    """Return the inputs of an operator by the names of its schema; none for a node without one."""
    schema = node.schema()
    if schema == "(no schema)":
        return {}
    names = [argument.name for argument in torch._C.parse_schema(schema).arguments]
    return dict(zip(names, node.inputs(), strict=False))


def plain_type(value: Any) -> str:
    """Return how TorchScript writes the type of a value."""
    return str(value.type().annotation_str)
