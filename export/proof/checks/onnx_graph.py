"""An ONNX graph as checks look at it: who made a value, who takes it, what it depends on, which sizes it has.

Names are only ever labels here: nothing is concluded from how a node or a value is called.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper

from export.node_names import flat_nodes, inner_graphs
from export.onnx_export import shape_of
from export.profiles import PROFILES

# What looks at the sizes of a tensor and never at its values.
_SHAPE_ONLY = frozenset({"Shape", "Size"})
# The newest of all profiles: no operator of Ferry's graphs has other defaults at an older one.
_OPSET = max(profile.opset for profile in PROFILES.values())


class OnnxGraph:
    """The graph of a model, in the order of its nodes."""

    def __init__(self, model: onnx.ModelProto) -> None:
        """Take a model that onnx.checker may or may not accept."""
        self.model = model
        # Branches stand before their node, which takes what they give.
        self.nodes: list[onnx.NodeProto] = list(flat_nodes(model.graph))
        self.producers = {name: node for node in self.nodes for name in node.output if name}
        self.stored = {tensor.name: tensor for tensor in model.graph.initializer}
        for node in self.nodes:
            for attribute in node.attribute:
                if node.op_type == "Constant" and attribute.HasField("t"):
                    self.stored[node.output[0]] = attribute.t

    def of_kind(self, operator: str) -> list[onnx.NodeProto]:
        return [node for node in self.nodes if node.op_type == operator]

    @cached_property
    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The stored tensors; those in another file are left out, as reading them would open a file of its choice."""
        return {
            name: np.asarray(numpy_helper.to_array(tensor))
            for name, tensor in self.stored.items()
            if tensor.data_location != onnx.TensorProto.EXTERNAL and not tensor.external_data
        }

    def constant(self, name: str) -> Any:
        """Return a stored value as plain numbers; None if nothing of that name is stored."""
        values = self.arrays.get(name)
        return None if values is None else values.tolist()

    @cached_property
    def dependencies(self) -> dict[str, frozenset[str]]:
        """Which of the model's inputs a value's own values follow from; its sizes alone do not count."""
        found = {value.name: frozenset({value.name}) for value in self.model.graph.input}
        for node in self.nodes:
            taken = () if node.op_type in _SHAPE_ONLY else [found.get(name, frozenset()) for name in node.input]
            for name in node.output:
                found[name] = frozenset().union(*taken)
        return found

    @cached_property
    def shapes(self) -> dict[str, tuple[int | str, ...]]:
        """The sizes of every value, inferred anew from the declared inputs: what the file says itself is not used."""
        bare = onnx.ModelProto()
        bare.CopyFrom(self.model)
        bare.graph.ClearField("value_info")
        for graph in inner_graphs(bare.graph):
            graph.ClearField("value_info")
        inferred = onnx.shape_inference.infer_shapes(bare, data_prop=True).graph
        graphs = [inferred, *inner_graphs(inferred)]
        values = (value for graph in graphs for value in (*graph.input, *graph.value_info, *graph.output))
        return {value.name: shape_of(value) for value in values}

    def ancestors(self, name: str) -> Iterator[onnx.NodeProto]:
        """Yield every node that a value follows from, each once."""
        seen, waiting = set[str](), [name]
        while waiting:
            value = waiting.pop()
            node = self.producers.get(value)
            if node is None or value in seen:
                continue
            # A node with several outputs stands for all of them.
            seen.update(node.output)
            waiting.extend(node.input)
            yield node

    def trace_back(self, name: str, through: frozenset[str]) -> str:
        """Follow a value back through nodes that only move values about, to the value that entered them.

        Through an If, if that is among them, the way goes by its last branch.
        """
        for _ in self.nodes:
            node = self.producers.get(name)
            if node is None or node.op_type not in through:
                break
            # What the last branch gives stands last.
            name = (
                node.input[list(node.output).index(name) - len(node.output)] if node.op_type == "If" else node.input[0]
            )
        return name


def attributes_of(node: onnx.NodeProto) -> dict[str, Any]:
    """Return the attributes of a node as plain values, those that it leaves out with their defaults."""
    values: dict[str, Any] = {}
    if onnx.defs.has(node.op_type, _OPSET, node.domain):
        for name, declared in onnx.defs.get_schema(node.op_type, _OPSET, node.domain).attributes.items():
            if declared.default_value.type != onnx.AttributeProto.UNDEFINED:
                values[name] = onnx.helper.get_attribute_value(declared.default_value)
    for attribute in node.attribute:
        values[attribute.name] = onnx.helper.get_attribute_value(attribute)
    return {
        name: value.decode("utf-8", "replace") if isinstance(value, bytes) else value for name, value in values.items()
    }


def describe(node: onnx.NodeProto) -> str:
    return f"{node.op_type} {node.name or '(unnamed)'}"
