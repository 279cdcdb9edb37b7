"""What `forward` of model.pt computes, operation by operation, against a fresh export."""

from collections.abc import Iterator
from typing import Any

from export.proof.checks.files import Files
from export.proof.checks.fresh_export import Operation, compare, digest_of, fresh_export, judge
from export.proof.checks.script_graph import COMPUTED, ScriptGraph, arguments_of, plain_type
from export.torchscript import TORCHSCRIPT_FILE


def check_script_graph(files: Files) -> list[str]:
    got, wanted = (list(_operations(script)) for script in (files.script, fresh_export(files).script))
    return judge(files, TORCHSCRIPT_FILE, compare(TORCHSCRIPT_FILE, got, wanted))


def _shown(script: ScriptGraph, node: Any) -> Iterator[str]:
    names = list(arguments_of(node))
    for place, value in enumerate(node.inputs()):
        constant = script.constant(value)
        if constant is COMPUTED:
            yield script.path(value) or value.debugName().partition(".")[0]
        else:
            yield f"{names[place]}={constant!r}" if place < len(names) else repr(constant)


def _operations(script: ScriptGraph) -> Iterator[Operation]:
    """Yield the operations of `forward` as it stands in the file, in program order."""
    values: dict[int, str] = {}

    def of(value: Any) -> str:
        node = value.node()
        if node.kind() == "prim::Constant":
            return f"constant {plain_type(value)} {node.output().toIValue()!r}"
        path = script.path(value)
        if path is None:
            return values.get(value.unique(), "an unknown value")
        held = script.constant(value)
        return f"{plain_type(value)} {path}" if held is COMPUTED else f"{path} = {held!r}"

    def follow(block: Any, place: str) -> Iterator[Operation]:
        for number, value in enumerate(block.inputs()):
            values[value.unique()] = f"parameter {number} of {place}"
        for node in block.nodes():
            if node.kind() in ("prim::Constant", "prim::GetAttr"):
                continue
            taken = [of(value) for value in node.inputs()]
            inner: list[object] = []
            for number, part in enumerate(node.blocks()):
                operations = list(follow(part, f"{place}.{number}"))
                yield from operations
                inner.append(([operation.digest for operation in operations], [of(value) for value in part.outputs()]))
            kept = {name: str(node[name]) for name in node.attributeNames()}
            types = [plain_type(value) for value in node.outputs()]
            digest = digest_of(node.kind(), kept, taken, inner, types)
            values.update((value.unique(), f"{digest} {number}") for number, value in enumerate(node.outputs()))
            yield Operation(digest, f"{node.kind()}({', '.join(_shown(script, node))})")

    yield from follow(script.whole, "forward")
    returned = [of(value) for value in script.whole.outputs()]
    yield Operation(digest_of(returned), "what forward returns")
