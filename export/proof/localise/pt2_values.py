"""Values inside a .pt2 file: its graph of ATen operators, run node by node."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, fx

from export.contract import LOGITS
from export.proof.cases import Case
from export.proof.localise.graph_values import GraphNode, graph_points, named_module
from export.proof.localise.points import Array, Found, Point, StoppedError
from export.proof.runtimes.base import last_line
from export.proof.runtimes.torch_runtime import TORCH_ERRORS


def pt2_points(
    module: fx.GraphModule, case: Case, wanted: Mapping[Point, Array], *, modules: frozenset[str]
) -> dict[Point, Found]:
    """Return what a .pt2 file's program computes at the points of the eager model; other arguments as `onnx_points`.

    Raises:
        StoppedError: if the program can't run the input.
    """
    nodes = [_describe(node, modules) for node in module.graph.nodes if node.op == "call_function"]
    (last,) = (node for node in module.graph.nodes if node.op == "output")
    outputs = [node.name for node in last.all_input_nodes]

    def compute(names: list[str]) -> dict[str, Array]:
        watcher = _Watcher(module, {node.makes[0]: node for node in nodes}, frozenset(names))
        with torch.inference_mode():
            watcher.run(torch.from_numpy(case.input_ids), torch.from_numpy(case.attention_mask))
        return watcher.values

    return graph_points(nodes, outputs, wanted, compute)


class _Watcher(fx.Interpreter):
    """Runs a graph and keeps the tensors of some of its nodes."""

    def __init__(self, module: fx.GraphModule, nodes: Mapping[str, GraphNode], names: frozenset[str]) -> None:
        super().__init__(module)
        self.nodes = nodes
        self.names = names
        self.values: dict[str, Array] = {}

    def run_node(self, n: fx.Node) -> Any:
        try:
            result = super().run_node(n)
        except TORCH_ERRORS as error:
            node = self.nodes.get(n.name)
            where, operator = (node.module, node.operator) if node else (None, n.name)
            raise StoppedError(last_line(error), where or LOGITS, operator) from error
        if n.name in self.names and isinstance(result, Tensor):
            self.values[n.name] = result.numpy().copy()
        return result


def _describe(node: fx.Node, modules: frozenset[str]) -> GraphNode:
    reads = [source.name for source in node.all_input_nodes]
    tensors = [str(source.target) for source in node.all_input_nodes if source.op == "get_attr"]
    stack = list(node.meta.get("nn_module_stack", {}).values())
    given = stack[-1][0] if stack else None
    return GraphNode(
        module=named_module(given, tensors, modules),
        operator=str(node.target).removesuffix(".default"),
        reads=tuple(reads),
        makes=(node.name,),
    )
