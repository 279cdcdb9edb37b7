"""Is every weight used where it belongs? Two weights that changed places are all there, and the function is another.

Weights are bound to operators by their values and by the order of computation, never by a name that a file gives.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from export.contract import ATTENTION_MASK, INPUT_IDS
from export.onnx_export import ONNX_FILE
from export.proof.checks.files import Files
from export.proof.checks.onnx_graph import attributes_of, describe
from export.proof.checks.script_graph import arguments_of
from export.proof.checks.uses import EMBEDDING, LINEAR, NORM, Use
from export.proof.runtimes import Array
from export.torchscript import TORCHSCRIPT_FILE

# Where ONNX's operators take a module's first parameter, its weight, and its second.
_ONNX_PLACES: dict[str, tuple[set[tuple[str, int]], set[tuple[str, int]]]] = {
    EMBEDDING: ({("Gather", 0)}, set()),
    LINEAR: ({("Gemm", 1), ("MatMul", 1)}, {("Gemm", 2), ("Add", 0), ("Add", 1)}),
    NORM: ({("LayerNormalization", 1)}, {("LayerNormalization", 2)}),
}
_SCRIPT_KINDS = {"aten::embedding": EMBEDDING, "aten::linear": LINEAR, "aten::layer_norm": NORM}
_NOTHING = -1


@dataclass(frozen=True)
class _Taken:
    """A stored weight that a node takes: the names of the weights with these values, and how it takes them."""

    names: frozenset[str]
    node: Any
    place: int
    transposed: bool


def check_uses(files: Files) -> list[str]:
    return [*_check_onnx(files), *_check_torchscript(files)]


def _check_onnx(files: Files) -> Iterator[str]:
    wanted = [(use, rank, name) for use in files.uses for rank, name in enumerate(use.parameters)]
    covered = {name for _, _, name in wanted}
    taken = [part for part in _taken_weights(files) if part.names & covered]
    if len(taken) != len(wanted):
        yield f"{ONNX_FILE} uses weights {len(taken)} times; the model uses them {len(wanted)} times"
        return
    for part, (use, rank, name) in zip(taken, wanted, strict=True):
        where = f"{ONNX_FILE}, {describe(part.node)}"
        if name not in part.names:
            yield f"{where}: takes the weight {min(part.names)} where the model takes {name}"
            continue
        if (part.node.op_type, part.place) not in _ONNX_PLACES[use.kind][min(rank, 1)]:
            yield f"{where}: takes {name} as its input {part.place}, where no {use.kind} has one"
        elif use.kind == LINEAR and rank == 0 and not _multiplies_transposed(part):
            yield f"{where}: multiplies by {name} transposed the wrong way"
    yield from _check_onnx_order(files, [part.node for part in taken], [use for use, _, _ in wanted])


def _taken_weights(files: Files) -> Iterator[_Taken]:
    """Yield every use of a stored tensor whose values are a weight's, in the order of the nodes."""
    known: dict[tuple[Any, ...], set[str]] = {}
    for name, weight in files.weights.items():
        known.setdefault(_content(weight), set()).add(name)
    arrays = dict(files.graph.arrays)
    for node in files.graph.nodes:
        if node.input[:1] and node.input[0] in arrays and (_turns(node) or node.op_type == "Split"):
            # Who takes what it gives takes the weight; of its parts the first stands for all, and which of them stand
            # where is a matter of attention's check.
            whole = arrays[node.input[0]]
            arrays[node.output[0]] = whole.T if _turns(node) else whole
            continue
        for place, name in enumerate(node.input):
            values = arrays.get(name)
            if values is None:
                continue
            names = known.get(_content(values))
            transposed = names is None and values.ndim == 2
            names = known.get(_content(values.T)) if transposed else names
            if names:
                yield _Taken(frozenset(names), node, place, transposed)


def _turns(node: Any) -> bool:
    """Whether a node is a matrix transpose."""
    return bool(node.op_type == "Transpose" and attributes_of(node).get("perm", [1, 0]) == [1, 0])


def _content(values: Array) -> tuple[Any, ...]:
    return str(values.dtype), values.shape, values.tobytes()


def _multiplies_transposed(part: _Taken) -> bool:
    """Whether a product is with Wᵀ, as a Linear's is; a square weight that equals its transpose may be either."""
    if part.node.op_type == "Gemm":
        return bool(attributes_of(part.node)["transB"]) != part.transposed
    return part.transposed


def _check_onnx_order(files: Files, nodes: list[Any], uses: list[Use]) -> Iterator[str]:
    """Check that each module works on what the one before it made, and each embedding looks up what it should."""
    order = list(dict.fromkeys(id(node) for node in nodes))
    step = {id(node): order.index(id(node)) for node in nodes}
    use_of = {id(node): use for node, use in zip(nodes, uses, strict=True)}
    latest: dict[str, int] = {}
    lookups = 0
    for node in files.graph.nodes:
        before = max((latest.get(name, _NOTHING) for name in node.input), default=_NOTHING)
        if id(node) in step:
            use = use_of[id(node)]
            if use.kind == EMBEDDING:
                yield from _check_lookup(files, node, use, first=lookups == 0)
                lookups += 1
            elif before != step[id(node)] - 1:
                yield f"{ONNX_FILE}, {describe(node)}: {use.path} does not work on what the module before it makes"
            before = step[id(node)]
        latest.update(dict.fromkeys(node.output, before))


def _check_lookup(files: Files, node: Any, use: Use, *, first: bool) -> Iterator[str]:
    """The first embedding looks ids up, the others positions, and those follow from the mask alone."""
    wanted = {INPUT_IDS, ATTENTION_MASK} if first else {ATTENTION_MASK}
    got = files.graph.dependencies.get(node.input[1], frozenset())
    if got != wanted:
        told = ", ".join(sorted(got)) or "nothing"
        yield (
            f"{ONNX_FILE}, {describe(node)}: {use.path} looks up what follows from {told}; "
            f"it must follow from {', '.join(sorted(wanted))}"
        )


def _check_torchscript(files: Files) -> Iterator[str]:
    script = files.script
    got = []
    for node in script.nodes:
        if node.kind() in _SCRIPT_KINDS:
            arguments = arguments_of(node)
            taken = [arguments[name] for name in ("weight", "bias") if name in arguments]
            paths = [script.path(value) or "something computed" for value in taken if not value.node().mustBeNone()]
            got.append((_SCRIPT_KINDS[node.kind()], paths))
    wanted = [(use.kind, list(use.parameters)) for use in files.uses]
    if len(got) != len(wanted):
        yield f"{TORCHSCRIPT_FILE} uses modules with weights {len(got)} times; the model uses them {len(wanted)} times"
        return
    for number, (found, asked) in enumerate(zip(got, wanted, strict=True), start=1):
        if found != asked:
            yield (
                f"{TORCHSCRIPT_FILE}, use {number} of a weight: {found[0]} with {', '.join(found[1])}; "
                f"the model has {asked[0]} with {', '.join(asked[1])}"
            )
    yield from _check_script_order(files)


def _check_script_order(files: Files) -> Iterator[str]:
    latest: dict[Any, int] = {}
    problems: list[str] = []
    uses = iter(enumerate(files.uses))

    def follow(block: Any) -> None:
        for node in block.nodes():
            for inner in node.blocks():
                follow(inner)
            sources = [*node.inputs(), *(value for inner in node.blocks() for value in inner.outputs())]
            before = max((latest.get(value.unique(), _NOTHING) for value in sources), default=_NOTHING)
            if node.kind() in _SCRIPT_KINDS:
                step, use = next(uses)
                if use.kind != EMBEDDING and before != step - 1:
                    problems.append(f"{TORCHSCRIPT_FILE}: {use.path} does not work on what the module before it makes")
                before = step
            latest.update((value.unique(), before) for value in node.outputs())

    follow(files.script.graph)
    yield from problems
