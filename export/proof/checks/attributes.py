"""Attributes against the configuration: what moves the answers by less than rounding does must be read, not run."""

import math
from collections import Counter
from typing import Any

import numpy as np
from torch import nn

from export.onnx_export import ONNX_FILE
from export.proof.checks.files import Files
from export.proof.checks.onnx_graph import attributes_of, describe
from export.proof.checks.script_graph import arguments_of
from export.rewrite.attention import ATTENTION, FAINT
from export.torchscript import TORCHSCRIPT_FILE
from models.attention import ATTENTIONS

# What each activation becomes in TorchScript. An approximation is another function, by up to 5e-4.
ACTIVATIONS: dict[type[nn.Module], str] = {nn.ReLU: "aten::relu", nn.GELU: "aten::gelu"}
# Attributes that are the same for every model. Those of `Attention` other than these it must not have.
_ONNX_FIXED: dict[str, dict[str, Any]] = {
    "CumSum": {"exclusive": 0, "reverse": 0},
    "Gelu": {"approximate": "none"},
    "Gemm": {"alpha": 1.0, "beta": 1.0, "transA": 0},
    "LayerNormalization": {"axis": -1, "stash_type": 1},
    "Softmax": {"axis": -1},
}
# Nodes between an added mask and attention that move its values about.
_MASK_MOVES = frozenset({"Expand", "Gather", "If", "Slice"})
_SCRIPT_FIXED: dict[str, dict[str, Any]] = {
    "aten::gelu": {"approximate": "none"},
    "aten::softmax": {"dim": -1, "dtype": None},
    "aten::cumsum": {"dtype": None},
}


def check_epsilon(files: Files) -> list[str]:
    """Compare LayerNorm's epsilon and axes, norm by norm, in the order of computation."""
    norms = [files.eager.get_submodule(use.path) for use in files.uses if use.kind == "layer norm"]
    paths = [use.path for use in files.uses if use.kind == "layer norm"]
    wanted = [(_rounded(norm.eps), list(norm.normalized_shape)) for norm in norms if isinstance(norm, nn.LayerNorm)]
    in_onnx = [
        (_rounded(attributes_of(node)["epsilon"]), list(files.graph.arrays[node.input[1]].shape))
        for node in files.graph.of_kind("LayerNormalization")
    ]
    in_script = []
    for node in files.script.of_kind("aten::layer_norm"):
        arguments = arguments_of(node)
        epsilon, shape = (files.script.constant(arguments[name]) for name in ("eps", "normalized_shape"))
        in_script.append((_rounded(epsilon) if isinstance(epsilon, float) else epsilon, shape))
    problems = []
    for file, got in ((ONNX_FILE, in_onnx), (TORCHSCRIPT_FILE, in_script)):
        if len(got) != len(wanted):
            problems.append(f"{file} has {len(got)} LayerNorms; the model has {len(wanted)}")
        problems += [
            f"{file}, {path}: LayerNorm has epsilon {found[0]} over sizes {found[1]}; "
            f"the model has {asked[0]} over {asked[1]}"
            for path, found, asked in zip(paths, got, wanted, strict=False)
            if found != asked
        ]
    return problems


def _rounded(value: float) -> float:
    # ONNX stores attributes in float32.
    return float(f"{np.float32(value):.6g}")


def check_activation(files: Files) -> list[str]:
    """Count the activations of each kind."""
    wanted = Counter(type(module) for module in files.eager.modules() if type(module) in ACTIVATIONS)
    problems = []
    in_onnx = {nn.ReLU: "Relu", nn.GELU: files.profile.gelu}
    for kind, script_kind in ACTIVATIONS.items():
        operator = in_onnx[kind]
        for file, name, got in (
            (ONNX_FILE, operator, len(files.graph.of_kind(operator))),
            (TORCHSCRIPT_FILE, script_kind, len(files.script.of_kind(script_kind))),
        ):
            if got != wanted[kind]:
                problems.append(f"{file} has {got} of {wanted[kind]} {name}")
    return problems


def check_fixed_attributes(files: Files) -> list[str]:
    """Compare the attributes that no configuration changes."""
    problems = [
        f"{ONNX_FILE}, {describe(node)}: {name} is {got!r}; it must be {wanted!r}"
        for node in files.graph.nodes
        for name, wanted in _ONNX_FIXED.get(node.op_type, {}).items()
        if (got := attributes_of(node).get(name)) != wanted
    ]
    for node in files.script.nodes:
        arguments = arguments_of(node) if node.kind() in _SCRIPT_FIXED else {}
        for name, wanted in _SCRIPT_FIXED.get(node.kind(), {}).items():
            got = files.script.constant(arguments[name])
            if got != wanted:
                problems.append(f"{TORCHSCRIPT_FILE}, {node.kind()}: {name} is {got!r}; it must be {wanted!r}")
    return problems


def check_scalars(files: Files) -> list[str]:
    """Account for every float constant: a number that no setting explains changes the function, however little."""
    encoder = files.eager.get_submodule("encoder")
    scale = float(getattr(encoder, "scale", 1.0))
    config = files.config["encoder"]
    # A fused operator scales inside.
    fused = files.profile.fused == "Attention" and not _scales_itself(files)
    attention = 1.0 if fused else (config["dim"] // config["num_heads"]) ** -0.5
    # Factors of 1 are dropped on the way to ONNX.
    wanted = Counter({np.float32(scale).item(): int(scale != 1.0)}) + Counter(
        {np.float32(attention).item(): config["num_layers"] * int(attention != 1.0)}
    )
    by_erf = len(files.graph.of_kind("Erf"))
    # 0.5·x·(1 + erf(x / √2))
    wanted += Counter({0.5: by_erf})
    root = np.float32(math.sqrt(2.0)).item()
    beside = {"Where": {0.0, -math.inf}, **({"Add": {1.0}, "Div": {root}} if by_erf else {})}
    faint = _added_masks(files)
    got: Counter[float] = Counter()
    problems = []
    weights = {values.tobytes() for values in files.weights.values() if values.size == 1}
    for node in files.graph.nodes:
        for name in node.input:
            values = files.graph.arrays.get(name)
            if values is None or values.dtype.kind not in "fV" or values.size != 1 or values.tobytes() in weights:
                continue
            number = float(values.reshape(()))
            if node.op_type == "Mul":
                got[number] += 1
            elif number == FAINT and node.output[0] in faint:
                continue
            elif number not in beside.get(node.op_type, ()):
                problems.append(f"{ONNX_FILE}, {describe(node)}: no setting explains the number {number:.9g}")
    if got != wanted:
        problems.append(
            f"{ONNX_FILE} multiplies by the numbers (number: times) {told_numbers(got)}; "
            f"the model by {told_numbers(wanted)}"
        )
    return problems + _check_script_scalars(files, scale)


def _added_masks(files: Files) -> set[str]:
    """Return the values that are added to the scores of attention, if the rules make such."""
    encoder, graph = files.config["encoder"], files.graph
    if ATTENTION not in files.profile.rules or encoder["causal"]:
        return set()
    sums = [graph.producers.get(node.input[0]) for node in graph.of_kind("Softmax")]
    masks = [
        *(node.input[3] for node in graph.of_kind("Attention") if len(node.input) > 3),
        *(node.input[1] for node in sums if node is not None and node.op_type == "Add"),
    ]
    return {graph.trace_back(name, _MASK_MOVES) for name in masks}


def _check_script_scalars(files: Files, scale: float) -> list[str]:
    explained = explained_numbers(files)
    numbers = [
        value.toIValue()
        for node in files.script.of_kind("prim::Constant")
        for value in node.outputs()
        if value.type().kind() == "FloatType"
    ]
    problems = [
        f"{TORCHSCRIPT_FILE}: no setting explains the number {number:.9g}"
        for number in sorted({number for number in numbers if number not in explained}, key=repr)
    ]
    factors = [
        files.script.constant(arguments_of(node)["other"])
        for node in files.script.of_kind("aten::mul")
        if next(node.inputs()).node().kind() == "aten::embedding"
    ]
    if factors != [scale]:
        problems.append(f"{TORCHSCRIPT_FILE} multiplies the embeddings by {factors}; the model by {[scale]}")
    return problems


def explained_numbers(files: Files) -> set[float]:
    """Return the floats that may stand in a graph of torch's, as the model's modules have them."""
    modules = list(files.eager.modules())
    epsilons = {module.eps for module in modules if isinstance(module, nn.LayerNorm)}
    rates = {module.p for module in modules if isinstance(module, nn.Dropout)}
    scale = float(getattr(files.eager.get_submodule("encoder"), "scale", 1.0))
    # Written-out attention raises the width of a head to this power.
    power = {-0.5} if _scales_itself(files) else set()
    return {0.0, -math.inf, scale} | epsilons | rates | power


def _scales_itself(files: Files) -> bool:
    """Whether attention is written out and so multiplies queries by 1 / √D; a fused operator does so inside."""
    return ATTENTIONS[files.config["encoder"]["attention"]].core == "softmax"


def told_numbers(numbers: Counter[float]) -> str:
    return "{" + ", ".join(f"{number:.9g}: {times}" for number, times in sorted(numbers.items())) + "}"
