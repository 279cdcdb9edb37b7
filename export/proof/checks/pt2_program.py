"""What running model.pt2 can't show: its tensors, its interface, its attributes, and what it must not hold.

Tensors have the names of the state dict in it. Each function returns the problems that it found.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram

from export.contract import ATTENTION_MASK, INPUT_IDS
from export.example import choose_example
from export.model import model_labels, model_task
from export.proof.checks.files import Files
from export.pt2 import PT2_FILE

Array = npt.NDArray[Any]
_Number = TypeVar("_Number", int, float)

# No machine holds a batch of as many rows.
_ANY_BATCH = 2**62
_RANDOM = re.compile(r"rand|bernoulli|normal_|multinomial|exponential|native_dropout")


def check_tensors(files: Files) -> list[str]:
    """Compare every tensor of the file with the weights and the tables, bit for bit, and see that the graph uses it."""
    program, weights, tables = files.pt2, files.weights, files.tables
    wanted = {**tables, **weights}
    found = {name: _array(value) for name, value in {**program.constants, **program.state_dict}.items()}
    problems = []
    for name, values in wanted.items():
        if name not in found:
            problems.append(f"{PT2_FILE} lacks the tensor {name}")
        elif not _same_bits(found[name], values):
            problems.append(f"{PT2_FILE} has other values for the tensor {name}")
    for name in sorted(found.keys() - wanted.keys()):
        # A tied weight stands once in the safetensors file and under each of its names here.
        if not any(_same_bits(found[name], weight) for weight in weights.values()):
            problems.append(f"{PT2_FILE} holds the tensor {name}, which is neither a weight nor a table")
    names = {spec.arg.name: spec.target for spec in program.graph_signature.input_specs if spec.target is not None}
    for node in program.graph.find_nodes(op="placeholder"):
        if names.get(node.name) in weights and not node.users:
            problems.append(f"{PT2_FILE} does not use the weight {names[node.name]}")
    return problems


def check_interface(files: Files) -> list[str]:
    """Compare names, types and axes of inputs and output with the contract, and the limits of the axes."""
    program, limits = files.pt2, files.limits
    per_token, num_labels = model_task(files.config).per_token, len(model_labels(files.config))
    inputs = {node.name: node.meta["val"] for node in _nodes(program, program.graph_signature.user_inputs)}
    if list(inputs) != [INPUT_IDS, ATTENTION_MASK]:
        return [f"{PT2_FILE} must take {INPUT_IDS}, {ATTENTION_MASK}; got {', '.join(inputs)}"]
    problems = []
    shapes = {name: shape_of(value) for name, value in inputs.items()}
    axes = shapes[INPUT_IDS]
    varying = len(set(axes)) == len(axes) == 2 and all(isinstance(size, str) for size in axes)
    if not varying or shapes[ATTENTION_MASK] != axes or {value.dtype for value in inputs.values()} != {torch.int64}:
        told = {name: (*shapes[name], str(value.dtype)) for name, value in inputs.items()}
        problems.append(f"{PT2_FILE} must take two (batch, sequence) int64 whose sizes vary; got {told}")
    else:
        ranges = {str(symbol): value for symbol, value in program.range_constraints.items()}
        batch, sequence = ranges[str(axes[0])], ranges[str(axes[1])]
        if batch.lower != 1 or not batch.upper > _ANY_BATCH:
            problems.append(f"{PT2_FILE} must take batches of 1 row and more; got {batch.lower} to {batch.upper}")
        if (sequence.lower, sequence.upper) != (1, limits.max_length):
            problems.append(
                f"{PT2_FILE} must take sequences of 1 to {limits.max_length} tokens; "
                f"got {sequence.lower} to {sequence.upper}"
            )
    outputs = [node.meta["val"] for node in _nodes(program, program.graph_signature.user_outputs)]
    wanted = ((*(axes if per_token else axes[:1]), num_labels), torch.float32)
    if [(shape_of(value), value.dtype) for value in outputs] != [wanted]:
        got = [(shape_of(value), str(value.dtype)) for value in outputs]
        problems.append(f"{PT2_FILE} must give float32 logits of shape {wanted[0]}; got {got}")
    return problems


def check_inference_mode(files: Files) -> list[str]:
    """Look for dropout that is on and for operators that draw random numbers."""
    problems = []
    for node in calls_of(files.pt2):
        arguments = arguments_of(node)
        on = arguments.get("train") or arguments.get("training") or arguments.get("dropout_p")
        if on or _RANDOM.search(operator_of(node)):
            problems.append(f"{PT2_FILE} holds the training-mode node {operator_of(node)} {node.name}")
    return problems


def check_attributes(files: Files) -> list[str]:
    """Compare what operators are told beside their tensors with the eager model's modules."""
    modules = list(files.eager.modules())
    wanted: dict[str, Counter[Any]] = {
        "layer_norm epsilons": Counter(norm.eps for norm in modules if isinstance(norm, nn.LayerNorm)),
        "gelu approximations": Counter(part.approximate for part in modules if isinstance(part, nn.GELU)),
        # Our mechanisms mask by themselves and scale by the width of a head.
        "attention's (is_causal, scale)": Counter(),
    }
    got: dict[str, Counter[Any]] = {what: Counter() for what in wanted}
    for node in calls_of(files.pt2):
        arguments, operator = arguments_of(node), operator_of(node)
        if operator == "layer_norm":
            got["layer_norm epsilons"][arguments["eps"]] += 1
        elif operator == "gelu":
            got["gelu approximations"][arguments["approximate"]] += 1
        elif operator == "scaled_dot_product_attention":
            told = (arguments["is_causal"], arguments["scale"])
            got["attention's (is_causal, scale)"][told] += told != (False, None)
    return [
        f"{PT2_FILE} has {what} (value: count) {dict(+got[what])}; the model has {dict(wanted[what])}"
        for what in wanted
        if +got[what] != wanted[what]
    ]


def check_example_sizes(files: Files) -> list[str]:
    """Look for the example's sizes, which stand for nothing else, among the graph's numbers and its values' shapes."""
    telling = choose_example(files.eager, files.limits).telling
    problems = []
    for node in calls_of(files.pt2):
        value = node.meta.get("val")
        shape = shape_of(value) if isinstance(value, Tensor) else ()
        numbers = {*numbers_of([*node.args, *node.kwargs.values()], int), *shape}
        problems += [
            f"{PT2_FILE} holds the example's size {size} in {operator_of(node)} {node.name}"
            for size in sorted(telling)
            if size in numbers
        ]
    return problems


def _array(value: object) -> Array:
    array: Array = value.detach().numpy() if isinstance(value, Tensor) else np.empty(0)
    return array


def _same_bits(left: Array, right: Array) -> bool:
    return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()


def _nodes(program: ExportedProgram, names: Collection[Any]) -> list[fx.Node]:
    by_name = {node.name: node for node in program.graph.nodes}
    return [by_name[name] for name in names]


def calls_of(program: ExportedProgram) -> list[fx.Node]:
    return [node for node in program.graph.nodes if node.op == "call_function"]


def operator_of(node: fx.Node) -> str:
    """Return an operator's name without namespace and overload: aten.layer_norm.default is layer_norm."""
    target: Any = node.target
    return str(target._schema.name.rpartition("::")[2]) if hasattr(target, "_schema") else str(target.__name__)


def arguments_of(node: fx.Node) -> dict[str, Any]:
    """Return an operator's arguments by name, with the defaults of those that are not given."""
    target: Any = node.target
    if not hasattr(target, "_schema"):
        return {}
    names = [argument.name for argument in target._schema.arguments]
    defaults = {argument.name: argument.default_value for argument in target._schema.arguments}
    return {**defaults, **dict(zip(names, node.args, strict=False)), **node.kwargs}


def shape_of(value: Tensor) -> tuple[int | str, ...]:
    """Return the sizes of a value, those that vary as the names of their symbols."""
    return tuple(size if type(size) is int else str(size) for size in value.shape)


def numbers_of(values: Any, kind: type[_Number]) -> Iterator[_Number]:
    """Yield the numbers of one type among arguments, in lists too."""
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from numbers_of(value, kind)
        elif type(value) is kind:
            yield value
