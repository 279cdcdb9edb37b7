"""Names for the nodes of an ONNX graph: the path of the module that a node computes for, a slash, its operator.

`encoder.blocks.1.feed_forward.up/MatMul` is what a profiler, an error message of ONNX Runtime and the search for a
faulty layer then speak of. A number tells apart the nodes of one module with one operator. The root's own nodes have no
path: `Reshape_2`.
"""

import ast
from collections.abc import Iterator
from collections.abc import Set as AbstractSet

import onnx

# Where the exporter keeps the way to a node: the modules' paths from the root, "", down, and last PyTorch's operator.
_SCOPES = "pkg.torch.onnx.name_scopes"
# What it writes there for a node that it made without a module.
_NO_MODULE = "_empty_nn_module_stack_from_metadata_hook"


def name_nodes(graph: onnx.GraphProto, owners: AbstractSet[str]) -> None:
    """Name every node after its module and operator; needs the exporter's metadata, so it comes before stripping.

    Args:
        graph: the exported graph; its nodes get other names, each its own.
        owners: the paths of the modules that hold parameters or tables. Who reads `encoder.position.table` computes for
            `encoder.position`, even if PyTorch never called that module.
    """
    paths: dict[str, str] = {}
    taken: dict[str, int] = {}
    # Whose a parameter is, and what is made of parameters alone: a weight that was turned or split.
    owned: dict[str, str] = {}
    for node in all_nodes(graph):
        scope = _scope(node)
        if scope is None:
            # A node that one of the exporter's optimisations made works on for whoever made its input.
            scope = next((paths[name] for name in node.input if name in paths), "")
        whose = [owned.get(name, name.rpartition(".")[0]) for name in node.input]
        path = max((owner for owner in owners & {*whose} if is_inside(owner, scope)), default=scope)
        if whose and {*whose} <= owners:
            owned.update(dict.fromkeys(node.output, path))
        paths.update(dict.fromkeys(node.output, path))
        name = f"{path}/{node.op_type}" if path else node.op_type
        count = taken.setdefault(name, 0)
        taken[name] += 1
        node.name = f"{name}_{count}" if count else name


def module_of(node_name: str) -> str:
    """Return the module path in a name that `name_nodes` gave; the root's is empty."""
    return node_name.rpartition("/")[0]


def is_inside(path: str, outer: str) -> bool:
    """Whether a module path is another or lies below it; everything lies below the root."""
    return not outer or path == outer or path.startswith(f"{outer}.")


def all_nodes(graph: onnx.GraphProto | onnx.FunctionProto) -> Iterator[onnx.NodeProto]:
    """Yield every node of a graph or a function, and of the graphs inside its nodes."""
    for node in graph.node:
        yield node
        for inner in graphs_of(node):
            yield from all_nodes(inner)


def inner_graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield the graphs inside the nodes of a graph, and inside theirs."""
    for node in all_nodes(graph):
        yield from graphs_of(node)


def graphs_of(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """Return the graphs that a node has as attributes: the branches of an If."""
    return [
        inner for attribute in node.attribute for inner in [attribute.g] * attribute.HasField("g") + [*attribute.graphs]
    ]


def inputs_of(node: onnx.NodeProto) -> list[str]:
    """Return what a node takes, and what its branches take, their own values among it."""
    return [*node.input, *(name for branch in graphs_of(node) for inner in branch.node for name in inputs_of(inner))]


def flat_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Yield every node as if all branches were computed: those of its branches before a node that takes what they give.

    Such a node is a copy without branches.
    """
    for node in graph.node:
        branches = graphs_of(node)
        if not branches:
            yield node
            continue
        for branch in branches:
            yield from flat_nodes(branch)
        flat = onnx.NodeProto()
        flat.CopyFrom(node)
        del flat.attribute[:]
        flat.attribute.extend(part for part in node.attribute if not (part.HasField("g") or part.graphs))
        flat.input.extend(value.name for branch in branches for value in branch.output)
        yield flat


def _scope(node: onnx.NodeProto) -> str | None:
    for entry in node.metadata_props:
        if entry.key == _SCOPES:
            *modules, _ = ast.literal_eval(entry.value)
            return "" if modules[-1:] == [_NO_MODULE] or not modules else str(modules[-1])
    return None
