"""Values inside a TorchScript file: the graph of each method, copied, with what it hands to its submodules as outputs.

Loaded modules take no hooks, but their graphs keep the calls of submodules by name. A copy of a method's graph that
also returns the arguments and results of those calls is run on the arguments with which the method itself was called;
so it goes down from the root. Uses torch's private interface for graphs, here and nowhere else.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from export.contract import LOGITS
from export.proof.cases import Case
from export.proof.localise.eager_values import first_tensor
from export.proof.localise.points import FORWARD, GIVES, ROOT, TAKES, Found, Point, StoppedError
from export.proof.runtimes.base import BackendError, last_line
from export.proof.runtimes.torch_runtime import TORCH_ERRORS
from export.torchscript import load_torchscript

_CALL = "prim::CallMethod"
_FUNCTION = "prim::CallFunction"
_ATTRIBUTE = "prim::GetAttr"
_ERRORS = (*TORCH_ERRORS, AttributeError)
# So that a file that still draws random numbers gives one answer.
_SEED = 0


def torchscript_points(data: bytes, case: Case) -> dict[Point, Found]:
    """Return what a TorchScript file computes at every call of a module or method.

    Calls inside loops and branches are left out.

    Raises:
        ValueError: if the bytes are damaged.
        BackendError: if the module can't run the input; a StoppedError, if the place can be told.
    """
    module, _ = load_torchscript(data)
    arguments = (torch.from_numpy(case.input_ids), torch.from_numpy(case.attention_mask))
    found: dict[Point, Found] = {}
    try:
        with torch.inference_mode(), torch.random.fork_rng(devices=[]):
            for point, value, operator in _descend(module, _Call([], FORWARD, arguments, "input"), ROOT, {}):
                tensor = first_tensor(value)
                if tensor is not None:
                    found[point] = Found(tensor.numpy().copy(), operator)
    except _ERRORS as error:
        raise _explain(error, module, arguments) from error
    return found


class _Call(NamedTuple):
    """A call of a submodule; `names` leads to it, `maker` is the operator that made its first argument."""

    names: list[str]
    method: str
    arguments: tuple[Any, ...]
    maker: str


def _descend(
    module: Any, call: _Call, path: str, numbers: dict[tuple[str, str], int]
) -> Iterator[tuple[Point, Any, str]]:
    """Yield point, value and operator for a call of a method and every call that it makes."""
    number = numbers.get((path, call.method), 0)
    numbers[path, call.method] = number + 1
    method = getattr(module, call.method)
    result, calls = _run(module, method.graph, call.arguments)
    yield Point(path, call.method, number, TAKES), call.arguments, call.maker
    yield Point(path, call.method, number, GIVES), result, _last_operator(method.inlined_graph)
    for inner_call in calls:
        inner = _follow(module, inner_call.names)
        yield from _descend(inner, inner_call, _join(path, inner_call.names), numbers)


def _run(module: Any, graph: Any, arguments: tuple[Any, ...]) -> tuple[Any, list[_Call]]:
    """Run a method's graph; return its result and the calls of submodules that it made."""
    copy = graph.copy()
    nodes = [node for node in copy.nodes() if node.kind() == _CALL and _attribute_path(node.inputsAt(0))]
    for node in nodes:
        for value in list(node.inputs())[1:]:
            copy.registerOutput(value)
    if nodes:
        copy.makeMultiOutputIntoTuple()
    torch.manual_seed(_SEED)
    outputs = torch._C._create_function_from_graph("observed", copy)(module, *arguments)
    if not nodes:
        return outputs, []
    result, *values = outputs
    calls = []
    for node in nodes:
        called, *taken = node.inputs()
        maker = _describe(taken[0].node()) if taken else "none"
        calls.append(_Call(_attribute_path(called), node.s("name"), tuple(values[: len(taken)]), maker))
        values = values[len(taken) :]
    return result, calls


def _explain(error: Exception, module: Any, arguments: tuple[Any, ...]) -> BackendError:
    """Say where a module stopped, if its graphs can be run in parts."""
    try:
        with torch.inference_mode():
            where, operator = _stops_at(module, _Call([], FORWARD, arguments, "input"), ROOT)
    except _ERRORS:
        return BackendError(last_line(error))
    return StoppedError(last_line(error), where or LOGITS, operator)


def _stops_at(module: Any, call: _Call, path: str) -> tuple[str, str]:
    """Return module and operator of the innermost node that can't run, given a call that can't."""
    graph = getattr(module, call.method).graph
    for index, node in enumerate(graph.nodes()):
        if node.kind() in (_ATTRIBUTE, "prim::Constant"):
            continue
        try:
            _run_part(module, graph, call.arguments, index, taken=False)
        except _ERRORS:
            names = _attribute_path(node.inputsAt(0)) if node.kind() == _CALL else []
            if not names:
                return path, _describe(node)
            taken = _run_part(module, graph, call.arguments, index, taken=True)
            inner = _Call(names, node.s("name"), taken, "input")
            return _stops_at(_follow(module, names), inner, _join(path, names))
    return path, _last_operator(graph)


def _run_part(module: Any, graph: Any, arguments: tuple[Any, ...], index: int, *, taken: bool) -> tuple[Any, ...]:
    """Run a method's graph to the node at an index; return what the node gives, or else what a called method takes."""
    copy = graph.copy()
    nodes = list(copy.nodes())
    while list(copy.outputs()):
        copy.eraseOutput(0)
    values = list(nodes[index].inputs())[1:] if taken else list(nodes[index].outputs())
    for value in values:
        copy.registerOutput(value)
    for later in reversed(nodes[index if taken else index + 1 :]):
        later.destroy()
    copy.makeMultiOutputIntoTuple()
    outputs = torch._C._create_function_from_graph("part", copy)(module, *arguments)
    return (outputs,) if len(values) == 1 else tuple(outputs)


def _follow(module: Any, names: list[str]) -> Any:
    for name in names:
        module = getattr(module, name)
    return module


def _join(path: str, names: list[str]) -> str:
    return ".".join([path, *names] if path else names)


def _attribute_path(value: Any) -> list[str]:
    """Return the attributes that lead from the method's own module to a submodule; empty if they lead elsewhere."""
    names: list[str] = []
    node = value.node()
    while node.kind() == _ATTRIBUTE:
        names.insert(0, node.s("name"))
        node = node.input().node()
    return names if node.kind() == "prim::Param" else []


def _describe(node: Any) -> str:
    """Name the operator, or the function, that a node calls."""
    if node.kind() == _FUNCTION:
        return str(node.inputsAt(0).node().s("name"))
    if node.kind() == "prim::Param":
        return "input"
    return str(node.s("name")) if node.kind() == _CALL else str(node.kind())


def _last_operator(graph: Any) -> str:
    """Return the last operator of ATen in a graph with every call inside it written out, branches included."""
    operators = [node.kind() for node in _all_nodes(graph) if node.kind().startswith("aten::")]
    return operators[-1] if operators else "none"


def _all_nodes(block: Any) -> Iterator[Any]:
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from _all_nodes(inner)
