"""Values inside an ONNX file: added outputs on a copy of its graph, run by ONNX Runtime.

At optimisation off the graph runs as it stands in the file.
"""

import re
from collections.abc import Mapping

import numpy as np
import onnx
import onnxruntime as ort

from export.contract import ATTENTION_MASK, INPUT_IDS, LOGITS
from export.node_names import flat_nodes, module_of
from export.onnx_export import read_onnx
from export.proof.cases import Case
from export.proof.localise.graph_values import GraphNode, graph_points, named_module
from export.proof.localise.points import Array, Found, Point, StoppedError
from export.proof.runtimes.base import BackendError
from export.proof.runtimes.onnx_runtime import run_outputs

_AS_IT_STANDS = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
# How ONNX Runtime says which node failed.
_FAILED_NODE = re.compile(r"while running (?P<operator>\w+) node\. Name:'(?P<name>[^']*)'")


def onnx_points(
    data: bytes,
    case: Case,
    wanted: Mapping[Point, Array],
    *,
    modules: frozenset[str],
    level: ort.GraphOptimizationLevel = _AS_IT_STANDS,
    provider: str = "cpu",
) -> dict[Point, Found]:
    """Return what an ONNX file computes at the points of the eager model.

    Args:
        data: the file.
        case: the input.
        wanted: eager's values.
        modules: the paths of all modules.
        level: ONNX Runtime's optimisation level.
        provider: a key of PROVIDERS.

    Raises:
        ValueError: if the bytes are no ONNX model.
        StoppedError: if ONNX Runtime can't run a node.
        BackendError: if it can't load the model.
    """
    model = read_onnx(data)
    stored = {tensor.name for tensor in model.graph.initializer}
    # Who takes a weight turned, or a part of it, takes the weight.
    whole: dict[str, str] = {name: name for name in stored}
    nodes = []
    for node in flat_nodes(model.graph):
        if node.op_type in ("Transpose", "Split") and node.input[0] in whole:
            whole.update(dict.fromkeys(node.output, whole[node.input[0]]))
            continue
        reads = tuple(whole.get(name, name) for name in node.input)
        nodes.append(
            GraphNode(
                module=named_module(module_of(node.name) if "/" in node.name else None, reads, modules),
                operator=node.op_type,
                reads=reads,
                makes=tuple(name for name in node.output if name),
            )
        )
    outputs = [output.name for output in model.graph.output]
    # What a branch makes can't be asked for.
    outside = {name for node in model.graph.node for name in node.output}
    feed = {INPUT_IDS: case.input_ids, ATTENTION_MASK: case.attention_mask}

    def compute(names: list[str]) -> dict[str, Array]:
        names = [name for name in names if name in outside]
        # ONNX Runtime infers the types of added outputs.
        model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in outputs)
        try:
            values = run_outputs(model.SerializeToString(), names, feed, level=level, provider=provider)
            # Sequences of tensors are no values that eager has.
            return {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
        except BackendError as error:
            # Of a node in a branch it names the If first.
            matches = list(_FAILED_NODE.finditer(str(error)))
            if not matches:
                raise
            raise StoppedError(str(error), module_of(matches[-1]["name"]) or LOGITS, matches[-1]["operator"]) from error

    return graph_points(nodes, outputs, wanted, compute)
