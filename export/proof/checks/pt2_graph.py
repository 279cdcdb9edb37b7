"""The graph of model.pt2 as checks look at it: which weights it uses, where, how, and which numbers stand in it."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from export.archive import rewrite_archive
from export.example import model_numbers
from export.model import WEIGHTS_FILE
from export.proof.checks.attention import CORES
from export.proof.checks.attributes import ACTIVATIONS, explained_numbers, told_numbers
from export.proof.checks.files import Files
from export.proof.checks.interface import SMALL
from export.proof.checks.pt2_program import arguments_of, calls_of, numbers_of, operator_of, shape_of
from export.proof.checks.uses import EMBEDDING, LINEAR, NORM
from export.proof.checks.weights import repeated
from export.pt2 import PT2_FILE
from export.pt2_guard import PT2_DOCUMENTS, ROOT, read_documents
from models.attention import ATTENTIONS

_KINDS = {"embedding": EMBEDDING, "linear": LINEAR, "layer_norm": NORM}
_MOVES = frozenset({"mul", "transpose", "view"})
# How a slice spells "to the end".
_END = 2**63 - 1
_NOTHING = -1


def check_uses(files: Files) -> list[str]:
    """See `weight_uses`: every module with weights is used once, in order, on what the one before it made."""
    names = {spec.arg.name: spec.target for spec in files.pt2.graph_signature.input_specs}
    users = [node for node in calls_of(files.pt2) if operator_of(node) in _KINDS]
    got = []
    for node in users:
        arguments = arguments_of(node)
        taken = [arguments[name] for name in ("weight", "bias") if arguments.get(name) is not None]
        got.append((_KINDS[operator_of(node)], [names.get(getattr(value, "name", ""), "no weight") for value in taken]))
    wanted = [(use.kind, list(use.parameters)) for use in files.uses]
    if len(got) != len(wanted):
        return [f"{PT2_FILE} uses modules with weights {len(got)} times; the model uses them {len(wanted)} times"]
    problems = [
        f"{PT2_FILE}, {node.name}: {found[0]} with {', '.join(map(str, found[1]))}; "
        f"the model has {asked[0]} with {', '.join(asked[1])}"
        for node, found, asked in zip(users, got, wanted, strict=True)
        if found != asked
    ]
    latest: dict[fx.Node, int] = {}
    for node in files.pt2.graph.nodes:
        before = max((latest.get(source, _NOTHING) for source in node.all_input_nodes), default=_NOTHING)
        if node in users:
            step = users.index(node)
            if files.uses[step].kind != EMBEDDING and before != step - 1:
                problems.append(f"{PT2_FILE}: {files.uses[step].path} does not work on what the module before it makes")
            before = step
        latest[node] = before
    return problems


def check_stored_once(files: Files) -> list[str]:
    owned = Counter(values.tobytes() for values in (*files.weights.values(), *files.tables.values()))
    records = [
        (name, data)
        for name, data in files.pt2_archive
        if name.startswith(("data/weights/weight_", "data/constants/tensor_"))
    ]
    problems = [
        f"{PT2_FILE} stores the record {name} {times} times; {WEIGHTS_FILE} has it {allowed}"
        for name, times, allowed in repeated(records, owned)
    ]
    return problems + [
        f"{PT2_FILE} stores the record {name}, which is no weight and no table"
        for name, data in records
        if data not in owned
    ]


def check_activation(files: Files) -> list[str]:
    wanted = Counter(type(module) for module in files.eager.modules())
    got = Counter(operator_of(node) for node in calls_of(files.pt2))
    return [
        f"{PT2_FILE} has {got[kind.__name__.lower()]} of {wanted[kind]} {kind.__name__.lower()}"
        for kind in ACTIVATIONS
        if got[kind.__name__.lower()] != wanted[kind]
    ]


def check_fused(files: Files) -> list[str]:
    config = files.config["encoder"]
    got = Counter(operator_of(node) for node in calls_of(files.pt2))
    problems = []
    for core, operator in CORES.items():
        name = operator.removeprefix("aten::")
        wanted = config["num_layers"] if ATTENTIONS[config["attention"]].core == core else 0
        if got[name] != wanted:
            problems.append(f"{PT2_FILE} has {got[name]} of {wanted} {name}, one a layer")
    return problems


def check_attention(files: Files) -> list[str]:
    return list(_check_attention(files))


def _check_attention(files: Files) -> Iterator[str]:
    config = files.config["encoder"]
    for node in calls_of(files.pt2):
        arguments, operator = arguments_of(node), operator_of(node)
        where = f"{PT2_FILE}, {node.name}"
        if operator == "scaled_dot_product_attention":
            if arguments["attn_mask"] is None:
                yield f"{where}: has no mask"
            if arguments["enable_gqa"]:
                yield f"{where}: enable_gqa is set"
            yield from _check_wiring(where, [arguments[name] for name in ("query", "key", "value")])
        elif operator == "softmax":
            scores = _step_back(arguments["self"], frozenset({"masked_fill"}))
            users = [
                user
                for user in calls_of(files.pt2)
                if operator_of(user) == "matmul" and _step_back(user.args[0], frozenset({"masked_fill"})) is node
            ]
            if operator_of(scores) != "matmul" or len(users) != 1:
                yield f"{where}: does not stand between a product of queries and keys and the values"
            else:
                yield from _check_wiring(where, [*scores.args[:2], users[0].args[1]])
        elif operator == "view" and len(arguments["size"]) == 4 and arguments["size"][2:] != [config["num_heads"], -1]:
            yield f"{where}: splits heads into {arguments['size'][2:]}; the model has {config['num_heads']}"
    compared = sum(
        operator_of(node) == "le" and isinstance(node.meta.get("val"), torch.Tensor) for node in calls_of(files.pt2)
    )
    wanted = config["num_layers"] if config["causal"] else 0
    if compared != wanted:
        yield f"{PT2_FILE} compares positions for causal attention {compared} of {wanted} times"


def _check_wiring(where: str, values: list[Any]) -> Iterator[str]:
    """Check that queries, keys, values are the first, second and third part of one projection."""
    parts = [_step_back(value, _MOVES) for value in values]
    places = [(part.args[0], part.args[1]) if operator_of(part) == "getitem" else (part, None) for part in parts]
    if [place for _, place in places] != [0, 1, 2] or len({source for source, _ in places}) != 1:
        yield f"{where}: does not take queries, keys, values as one projection gives them"


def _step_back(node: Any, through: frozenset[str]) -> Any:
    while isinstance(node, fx.Node) and node.op == "call_function" and operator_of(node) in through:
        node = node.args[0]
    return node


def check_scalars(files: Files) -> list[str]:
    """See `attributes.check_scalars`; the power of a width has become a number here."""
    config = files.config["encoder"]
    width = (config["dim"] // config["num_heads"]) ** -0.5
    scale = float(getattr(files.eager.get_submodule("encoder"), "scale", 1.0))
    wanted = Counter([scale])
    if ATTENTIONS[config["attention"]].core == "softmax":
        wanted[width] += config["num_layers"]
    explained = explained_numbers(files)
    got: Counter[float] = Counter()
    problems = []
    for node in calls_of(files.pt2):
        for number in numbers_of([*node.args, *node.kwargs.values()], float):
            if operator_of(node) == "mul":
                got[number] += 1
            elif number not in explained:
                problems.append(f"{PT2_FILE}, {node.name}: no setting explains the number {number:.9g}")
    if got != wanted:
        problems.append(
            f"{PT2_FILE} multiplies by the numbers (number: times) {told_numbers(got)}; "
            f"the model by {told_numbers(wanted)}"
        )
    return problems


def check_axes(files: Files) -> list[str]:
    longest = files.limits.max_length
    # Packing's rectangle is bounded by one more.
    explained = {*model_numbers(files.eager), longest, longest + 1, *SMALL, _END}
    problems = []
    for node in calls_of(files.pt2):
        value = node.meta.get("val")
        sizes = shape_of(value) if isinstance(value, torch.Tensor) else ()
        whole = {*numbers_of([*node.args, *node.kwargs.values()], int), *(size for size in sizes if type(size) is int)}
        problems += [
            f"{PT2_FILE}, {operator_of(node)} {node.name}: holds {number}; no setting explains it"
            for number in sorted(whole - explained)
        ]
    return problems


def check_devices(files: Files) -> list[str]:
    """Look for devices other than the CPU, which the format names wherever a tensor is made."""
    return [
        f"{PT2_FILE}, {node.name}: has the device {value} baked in"
        for node in calls_of(files.pt2)
        for value in (*node.args, *node.kwargs.values())
        if isinstance(value, torch.device) and value != torch.device("cpu")
    ]


def check_foreign(files: Files) -> list[str]:
    data = files.read(PT2_FILE)
    # Reading refuses every record and every string that a graph of ours has no need of.
    _ = files.pt2
    records = dict(files.pt2_archive)
    for path, document in zip(PT2_DOCUMENTS, read_documents(data), strict=True):
        if json.dumps(document).encode() != records[path.removeprefix(ROOT)]:
            return [f"{PT2_FILE}, {path} is written otherwise than torch writes it"]
    if rewrite_archive(data, drop=()) != data:
        return [f"{PT2_FILE} holds more than its records, or holds them otherwise than Ferry writes them"]
    return []
