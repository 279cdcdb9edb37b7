"""Attention in both files: as many as there are layers, wired as queries, keys, values, with heads, scale and mask."""

from collections.abc import Iterator
from typing import Any

from export.contract import ATTENTION_MASK
from export.onnx_export import ONNX_FILE
from export.proof.checks.files import Files
from export.proof.checks.onnx_graph import OnnxGraph, attributes_of, describe
from export.proof.checks.script_graph import COMPUTED, arguments_of
from export.rewrite.attention import PARTS
from export.rewrite.row_groups import GROUPS
from export.rewrite.uneven import UNEVEN
from export.torchscript import TORCHSCRIPT_FILE
from models.attention import ATTENTIONS

# The operator that a layer has exactly one of in TorchScript, by `AttentionRow.core`.
CORES = {"fused": "aten::scaled_dot_product_attention", "softmax": "aten::softmax"}
# Those that a layer may have one of in ONNX.
_ONNX_CORES = ("Attention", "Softmax")
_NAMES = ("queries", "keys", "values")
# Nodes that move a tensor's values about, or multiply all of them, or hide some.
_ONNX_MOVES = frozenset({"Mul", "Reshape", "Transpose", "Where"})
# Those that lay packed tokens out in a rectangle.
_ONNX_LAYS_OUT = _ONNX_MOVES | {"Gather", "Squeeze"}
_SCRIPT_MOVES = frozenset({"aten::mul", "aten::transpose", "aten::view"})
_SCRIPT_MASKS = frozenset({"aten::masked_fill"})
# What `Attention` must leave to the mask, or to its defaults. The scale's own default is 1 / √D.
_ONNX_ATTENTION = {"is_causal": 0, "softcap": 0.0, "qk_matmul_output_mode": 0}
# How many heads lie side by side in queries, and in keys and values.
_HEADS = ("q_num_heads", "kv_num_heads")
_SCRIPT_ATTENTION = {"dropout_p": 0.0, "is_causal": False, "scale": None, "enable_gqa": False}


def check_fused(files: Files) -> list[str]:
    """Count the operators that attention was promised to become; a shortfall is a model that lost its fast kernels."""
    config = files.config["encoder"]
    core = ATTENTIONS[config["attention"]].core
    in_onnx = {"fused": files.profile.fused, "softmax": "Softmax"}[core]
    a_layer = {ONNX_FILE: 1 + GROUPS if _is_grouped(files) else 1, TORCHSCRIPT_FILE: 1}
    counted = [
        *((ONNX_FILE, name, len(files.graph.of_kind(name)), name == in_onnx) for name in _ONNX_CORES),
        *((TORCHSCRIPT_FILE, name, len(files.script.of_kind(name)), name == CORES[core]) for name in CORES.values()),
    ]
    return [
        f"{file} has {got} of {wanted} {name}, {a_layer[file]} a layer of {config['attention']!r} attention"
        for file, name, got, is_core in counted
        if got != (wanted := config["num_layers"] * a_layer[file] if is_core else 0)
    ]


def _is_grouped(files: Files) -> bool:
    """Whether each layer has an operator for even rows, and one for each group of rows."""
    config = files.config["encoder"]
    fused = ATTENTIONS[config["attention"]].core == "fused"
    return fused and UNEVEN in files.profile.rules and not config["causal"]


def check_attention(files: Files) -> list[str]:
    return [*_check_onnx(files), *_check_onnx_causal(files), *_check_torchscript(files)]


def _check_onnx(files: Files) -> Iterator[str]:
    graph, config = files.graph, files.config["encoder"]
    without_mask = _names_of_even(files)
    heads, width = config["num_heads"], config["dim"] // config["num_heads"]
    for node in graph.of_kind("Attention"):
        where = f"{ONNX_FILE}, {describe(node)}"
        attributes = attributes_of(node)
        # Heads are an axis, or lie side by side and are told.
        apart = len(sizes := graph.shapes.get(node.input[0], ())) == 4
        told = {"heads": sizes[1]} if apart else {name: attributes.pop(name, None) for name in _HEADS}
        for name, got in told.items():
            if got != heads:
                yield f"{where}: {name} is {got!r}; the model has {heads} heads"
        scale = attributes.pop("scale", width**-0.5)
        if abs(scale - width**-0.5) > 1e-7 * width**-0.5:
            yield f"{where}: scale is {scale:.9g}; the model has {width**-0.5:.9g}"
        for name in sorted(attributes.keys() | _ONNX_ATTENTION.keys()):
            if attributes.get(name) != _ONNX_ATTENTION.get(name):
                yield f"{where}: {name} is {attributes.get(name)!r}; it must be {_ONNX_ATTENTION.get(name)!r}"
        taken = PARTS if node.output[0] in without_mask else PARTS + 1
        if len(node.input) != taken:
            needed = "queries, keys and values" if taken == PARTS else "queries, keys, values and a mask"
            yield f"{where}: has {len(node.input)} inputs; it must have {needed}"
        yield from _check_wiring(files, where, list(node.input[:3]))
    for node in graph.of_kind("Softmax"):
        scores = _masked(files, node.input[0])
        product = graph.producers.get(scores)
        users = [user for user in graph.nodes if user.op_type == "MatMul" and _comes_from(files, user.input[0], node)]
        if product is None or product.op_type != "MatMul" or len(users) != 1:
            yield f"{ONNX_FILE}, {describe(node)}: does not stand between a product of queries and keys and the values"
            continue
        where = f"{ONNX_FILE}, {describe(node)}"
        yield from _check_wiring(files, where, [*product.input[:2], users[0].input[1]])
        got = graph.shapes.get(scores, ())
        if len(got) != 4 or got[1] != heads:
            yield f"{where}: takes scores of sizes {got}; the model has {heads} heads"
    for node in _cores(graph):
        if ATTENTION_MASK not in graph.dependencies.get(_mask_of(node), frozenset()):
            yield f"{ONNX_FILE}, {describe(node)}: its mask does not follow from {ATTENTION_MASK}"


def _names_of_even(files: Files) -> set[str]:
    """Return what the nodes give that run only if all cells of the rectangle hold tokens, so that nothing is hidden."""
    choices = [node for node in files.onnx.graph.node if node.op_type == "If" and _counts_cells(files, node)]
    branches = [part.g for node in choices for part in node.attribute if part.name == "then_branch"]
    return {name for branch in branches for node in branch.node for name in node.output}


def _counts_cells(files: Files, choice: Any) -> bool:
    """Whether an If asks for as many tokens as cells: the sizes of what the groups gather and where it goes."""
    graph = files.graph
    equal = graph.producers.get(choice.input[0])
    if equal is None or equal.op_type != "Equal":
        return False
    sizes = [graph.producers.get(name) for name in equal.input]
    if any(node is None or node.op_type != "Size" for node in sizes):
        return False
    counted = [graph.shapes.get(node.input[0], ()) for node in sizes if node is not None]
    follow = [graph.dependencies.get(node.input[0], frozenset()) for node in sizes if node is not None]
    return [len(sizes) for sizes in counted] == [2, 1] and follow == [frozenset({ATTENTION_MASK})] * 2


def _cores(graph: OnnxGraph) -> list[Any]:
    return [node for name in _ONNX_CORES for node in graph.of_kind(name)]


def _mask_of(core: Any) -> str:
    """Return the mask of an Attention, or the masked scores of a Softmax."""
    return str(core.input[3] if core.op_type == "Attention" and len(core.input) > 3 else core.input[0])


def _masked(files: Files, name: str) -> str:
    """Step back from masked scores to the scores."""
    node = files.graph.producers.get(name)
    # Chosen from: mask, one number, scores, in either order. Added to: scores, then the mask.
    if node is not None and node.op_type == "Where":
        return str(node.input[2] if node.input[1] in files.graph.arrays else node.input[1])
    return str(node.input[0]) if node is not None and node.op_type == "Add" else name


def _comes_from(files: Files, name: str, node: Any) -> bool:
    """Whether a value is a node's output, perhaps with some of it masked."""
    return bool(_masked(files, name) == node.output[0])


def _check_wiring(files: Files, where: str, values: list[str]) -> Iterator[str]:
    """Check that queries, keys, values are the first, second and third part of one projection."""
    graph = files.graph
    ways = [_way_back(graph, name) for name in values]
    makers = [graph.producers.get(source) for source, _ in ways]
    if all(maker is not None and maker.op_type == "Add" for maker in makers):
        yield from _check_projections(files, where, ways)
        return
    sources = [graph.trace_back(name, _ONNX_MOVES) for name in values]
    splits = {id(graph.producers.get(source)): graph.producers.get(source) for source in sources}
    split = next(iter(splits.values()))
    if len(splits) != 1 or split is None or split.op_type != "Split":
        yield f"{where}: queries, keys and values must be the parts of one projection"
    elif sources != list(split.output):
        order = [_NAMES[list(split.output).index(source)] for source in sources]
        yield f"{where}: takes {', '.join(order)} in the place of queries, keys, values"


def _way_back(graph: OnnxGraph, name: str) -> tuple[str, list[Any]]:
    """Follow a value back to what was laid out, and say how it was."""
    way: list[Any] = []
    node = graph.producers.get(name)
    while node is not None and node.op_type in _ONNX_LAYS_OUT:
        # Heads are set apart, and queries are scaled, by constants.
        if not all(taken in graph.arrays for taken in node.input[1:]):
            way.append((node.op_type, list(node.input[1:]), attributes_of(node)))
        name = node.input[0]
        node = graph.producers.get(name)
    return name, way


def _check_projections(files: Files, where: str, ways: list[tuple[str, list[Any]]]) -> Iterator[str]:
    """Check that queries, keys, values are laid out alike, each made of one input by its own part of one Linear."""
    graph = files.graph
    sums = [graph.producers.get(source) for source, _ in ways]
    products = [
        graph.producers.get(node.input[0]) if node is not None and len(node.input) == 2 else None for node in sums
    ]
    if any(product is None or product.op_type != "MatMul" for product in products):
        yield f"{where}: queries, keys and values must be the parts of one projection"
        return
    tokens = {product.input[0] for product in products if product is not None}
    if len(tokens) != 1 or any(way != ways[0][1] for _, way in ways):
        yield f"{where}: queries, keys and values must be of the same tokens, in the same cells"
    weights = [_part(graph, product.input[1]) for product in products if product is not None]
    biases = [_part(graph, node.input[1]) for node in sums if node is not None]
    for parts in (weights, biases):
        if any(part is None for part in parts) or len({whole for whole, _ in filter(None, parts)}) != 1:
            yield f"{where}: queries, keys and values must be the parts of one projection"
        elif (order := [number for _, number in filter(None, parts)]) != list(range(PARTS)):
            told = ", ".join(_NAMES[number] for number in order)
            yield f"{where}: takes {told} in the place of queries, keys, values"


def _part(graph: OnnxGraph, name: str) -> tuple[str, int] | None:
    """Return which output of which Split into three equal parts of columns a value is."""
    split = graph.producers.get(name)
    if split is None or split.op_type != "Split" or len(split.input) != 1 or len(split.output) != PARTS:
        return None
    stored = graph.arrays.get(split.input[0])
    axes = len(graph.shapes.get(split.input[0], ())) if stored is None else stored.ndim
    if attributes_of(split) != {"axis": axes - 1, "num_outputs": PARTS}:
        return None
    return split.input[0], list(split.output).index(name)


def _check_onnx_causal(files: Files) -> Iterator[str]:
    """Check that a causal model, and no other, compares positions before attention, keys with queries."""
    graph, causal = files.graph, files.config["encoder"]["causal"]
    compared = {id(node): node for node in graph.of_kind("LessOrEqual")}
    if not causal:
        for node in compared.values():
            yield f"{ONNX_FILE}, {describe(node)}: compares positions as a causal model does; this one is not causal"
        return
    for core in _cores(graph):
        before = [node for node in graph.ancestors(_mask_of(core)) if id(node) in compared]
        sizes = [[graph.shapes.get(name, ())[-2:] for name in node.input] for node in before]
        if not any(len(key) == 2 and key[0] == 1 and query[1:] == (1,) for key, query in sizes):
            where = f"{ONNX_FILE}, {describe(core)}"
            yield f"{where}: nothing keeps a query from the keys after it; the model is causal"


def _check_torchscript(files: Files) -> Iterator[str]:
    script, config = files.script, files.config["encoder"]
    for node in script.of_kind("aten::scaled_dot_product_attention"):
        arguments = arguments_of(node)
        for name, wanted in _SCRIPT_ATTENTION.items():
            got = script.constant(arguments[name])
            if got != wanted:
                yield f"{TORCHSCRIPT_FILE}, {node.kind()}: {name} is {got!r}; it must be {wanted!r}"
        if arguments["attn_mask"].node().mustBeNone():
            yield f"{TORCHSCRIPT_FILE}, {node.kind()}: has no mask"
        yield from _check_script_wiring([arguments[name] for name in ("query", "key", "value")])
    products = {value.unique(): node for node in script.of_kind("aten::matmul") for value in node.outputs()}
    for node in script.of_kind("aten::softmax"):
        scores = products.get(_step_back(next(node.inputs()), _SCRIPT_MASKS).unique())
        weights = node.output().unique()
        users = [
            user for user in products.values() if _step_back(next(user.inputs()), _SCRIPT_MASKS).unique() == weights
        ]
        if scores is None or len(users) != 1:
            yield f"{TORCHSCRIPT_FILE}, {node.kind()}: does not stand between queries and keys and the values"
        else:
            yield from _check_script_wiring([*scores.inputs(), list(users[0].inputs())[1]])
    for node in script.of_kind("aten::view"):
        sizes = script.constant(list(node.inputs())[1])
        if len(sizes) == 4 and sizes[2:] != [config["num_heads"], -1]:
            yield f"{TORCHSCRIPT_FILE}: splits heads into {sizes[2:]}; the model has {[config['num_heads'], -1]}"
    compared = len(script.of_kind("aten::le"))
    wanted_compared = config["num_layers"] if config["causal"] else 0
    if compared != wanted_compared:
        yield f"{TORCHSCRIPT_FILE} compares positions for causal attention {compared} of {wanted_compared} times"
    yield from _check_script_flags(files)


def _check_script_wiring(values: list[Any]) -> Iterator[str]:
    sources = [_step_back(value, _SCRIPT_MOVES) for value in values]
    parts = [part.unique() for part in sources[0].node().outputs()]
    if [source.unique() for source in sources] != parts:
        yield f"{TORCHSCRIPT_FILE}: attention does not take queries, keys, values as one projection gives them"


def _step_back(value: Any, through: frozenset[str]) -> Any:
    """Follow a value back through nodes that only move it about, and in and out of tuples."""
    while True:
        node = value.node()
        if node.kind() in through:
            value = next(node.inputs())
        elif node.kind() == "prim::TupleUnpack" and node.input().node().kind() == "prim::TupleConstruct":
            place = [output.unique() for output in node.outputs()].index(value.unique())
            value = list(node.input().node().inputs())[place]
        else:
            return value


def _check_script_flags(files: Files) -> Iterator[str]:
    """Compare the settings that stand in the modules of the file with those of the model's own modules."""
    modules = dict(files.torchscript.named_modules())
    for path, module in files.eager.named_modules():
        for name in ("num_heads", "causal"):
            wanted = getattr(module, name, None)
            if wanted is None or path not in modules:
                continue
            scripted: Any = modules[path]
            got = scripted._c.getattr(name) if scripted._c.hasattr(name) else COMPUTED
            if got != wanted:
                yield f"{TORCHSCRIPT_FILE}, {path}: {name} is {got!r}; the model has {wanted!r}"
