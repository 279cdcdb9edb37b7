"""A graph that is being written: nodes and tensors, each once."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from export.node_names import inputs_of


@dataclass
class Written:
    """Nodes in order and tensors by name; what is asked for again is there already and is used."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    tensors: dict[str, onnx.TensorProto] = field(default_factory=dict)
    _outputs: set[str] = field(default_factory=set)
    _names: Counter[str] = field(default_factory=Counter)

    def node(self, operator: str, inputs: list[str], output: str, *, owner: str, **attributes: Any) -> str:
        """Add a node that computes for a module, named as `name_nodes` does, and return its output."""
        if output not in self._outputs:
            name = f"{owner}/{operator}"
            number = self._names[name]
            named = f"{name}_{number}" if number else name
            self._names[name] += 1
            self._outputs.add(output)
            self.nodes.append(helper.make_node(operator, inputs, [output], name=named, **attributes))
        return output

    def tensor(self, name: str, values: Any) -> str:
        """Store values, and return their name."""
        if name not in self.tensors:
            self.tensors[name] = numpy_helper.from_array(np.ascontiguousarray(values).reshape(np.shape(values)), name)
        return name

    def replace_in(self, graph: onnx.GraphProto) -> None:
        """Put what was written into a graph, whose tensors stay as far as a node takes them."""
        nodes = _used(self.nodes, {value.name for value in graph.output})
        taken = {name for node in nodes for name in inputs_of(node)}
        given = {name for node in nodes for name in node.output}
        tensors = [tensor for tensor in (*graph.initializer, *self.tensors.values()) if tensor.name in taken]
        values = [value for value in graph.value_info if value.name in given]
        for part, new in ((graph.node, nodes), (graph.initializer, tensors), (graph.value_info, values)):
            # Copied first, for the old ones are among the new.
            copies = [type(one).FromString(one.SerializeToString()) for one in new]
            del part[:]
            part.extend(copies)


def _used(nodes: list[onnx.NodeProto], outputs: set[str]) -> list[onnx.NodeProto]:
    """Return the nodes that the outputs follow from, in their order."""
    wanted, kept = set(outputs), []
    for node in reversed(nodes):
        if wanted & set(node.output):
            kept.append(node)
            wanted.update(inputs_of(node))
    return kept[::-1]
