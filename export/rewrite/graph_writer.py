"""Nodes written one by one into a graph, each with a name for what it gives: graphs inside a graph share all names."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir.convenience import convert_attributes


class GraphWriter:
    """Nodes in the order in which they were written, for a graph or for a branch of an If in it."""

    def __init__(self, graph: ir.Graph, name: str, like: ir.Node | None = None) -> None:
        """Write for `graph`, or for a branch somewhere in it.

        Args:
            graph: where constants are stored.
            name: what values are called after.
            like: a node whose notes the nodes get: for which module it computes.
        """
        self.nodes: list[ir.Node] = []
        self._graph = graph
        self._name = name
        self._like = like

    def __call__(self, operator: str, *inputs: ir.Value, **attributes: Any) -> ir.Value:
        """Write a node with one output, and return that."""
        return self.several(operator, [ir.Value()], *inputs, **attributes)[0]

    def several(
        self, operator: str, outputs: Sequence[ir.Value], *inputs: ir.Value, **attributes: Any
    ) -> Sequence[ir.Value]:
        """Write a node that gives these values, which get names."""
        for place, output in enumerate(outputs):
            output.name = f"{self._name}_{len(self.nodes)}" + (f"_{place}" if place else "")
        node = ir.Node("", operator, inputs, convert_attributes(attributes), outputs=outputs)
        if self._like is not None:
            node.metadata_props.update(self._like.metadata_props)
        self.nodes.append(node)
        return outputs

    def branch(self, name: str) -> "GraphWriter":
        """Return a writer for a branch."""
        return GraphWriter(self._graph, f"{self._name}_{name}", self._like)

    def choose(
        self,
        condition: ir.Value,
        then: tuple["GraphWriter", list[ir.Value]],
        other: tuple["GraphWriter", list[ir.Value]],
    ) -> Sequence[ir.Value]:
        """Write an If of two branches, each with what it gives: values of the same types and, but for names, sizes."""
        branches = {
            name: ir.Graph([], given, nodes=writer.nodes, name=writer._name)
            for name, (writer, given) in (("then_branch", then), ("else_branch", other))
        }
        outputs = [ir.Value(type=value.type, shape=value.shape) for value in other[1]]
        return self.several("If", outputs, condition, **branches)

    def constant(self, numbers: int | Sequence[int]) -> ir.Value:
        """Store integers in the graph, or find them there."""
        array = np.asarray(numbers, np.int64)
        for value in self._graph.initializers.values():
            known = value.const_value
            if known is not None and known.dtype == ir.DataType.INT64 and np.array_equal(known.numpy(), array):
                return value
        name = f"{self._name}_constant_{len(self._graph.initializers)}"
        stored = ir.tensor(array, name=name)
        value = ir.Value(name=name, type=ir.TensorType(stored.dtype), shape=ir.Shape(array.shape), const_value=stored)
        self._graph.register_initializer(value)
        return value
