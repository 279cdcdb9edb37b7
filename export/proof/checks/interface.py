"""What a runtime sees of the files before it runs them: versions, inputs and outputs, axes, one file alone."""

from collections.abc import Iterator
from typing import Any

import onnx

from export.contract import ATTENTION_MASK, BATCH_AXIS, INPUT_IDS, LOGITS, SEQUENCE_AXIS
from export.example import choose_example, model_numbers
from export.model import model_labels, model_task
from export.onnx_export import ONNX_FILE, shape_of
from export.proof.checks.files import Files, messages
from export.proof.checks.script_graph import walk
from export.rewrite.row_groups import GROUPS
from export.rewrite.uneven import UNEVEN
from export.torchscript import TORCHSCRIPT_FILE
from models.packing import Packing

# The sizes of tensors that hold shapes and axes: at most one number for each axis of (B, H, T, S).
_RANKS = range(1, 5)
# Axes, places in the tuple of packing, and torch's codes of int64 and float32 (4 and 6).
SMALL = range(-2, len(Packing._fields))


def check_onnx(files: Files) -> list[str]:
    try:
        onnx.checker.check_model(files.onnx, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        lines = str(error).strip().splitlines() or ["no reason given"]
        return [f"{ONNX_FILE} is refused by onnx.checker: {lines[0]}"]
    return []


def check_versions(files: Files) -> list[str]:
    opsets = [(entry.domain or "ai.onnx", entry.version) for entry in files.onnx.opset_import]
    opset, ir_version = files.profile.opset, files.profile.ir_version
    problems = []
    if opsets != [("ai.onnx", opset)]:
        problems.append(f"{ONNX_FILE} must import opset {opset} of ai.onnx and nothing else; got {opsets}")
    if files.onnx.ir_version != ir_version:
        problems.append(f"{ONNX_FILE} must be of IR version {ir_version}; got {files.onnx.ir_version}")
    return problems


def check_minimum_runtime(files: Files) -> list[str]:
    """Compare the promised runtimes with what the profile and the writing libtorch ask for."""
    told = files.onnx_metadata
    oldest = files.profile.minimum_onnxruntime
    # libtorch reads what its own or an older release wrote, and torch likewise.
    wanted = {"onnxruntime": oldest, "libtorch": told["versions"]["torch"], "torch": told["versions"]["torch"]}
    return [
        f"{ONNX_FILE} promises {name} {told['minimum_runtime'].get(name)}; the files need {needed}"
        for name, needed in wanted.items()
        if told["minimum_runtime"].get(name) != needed
    ] + [
        f"{ONNX_FILE} promises the unknown runtime {name}"
        for name in sorted(told["minimum_runtime"].keys() - wanted.keys())
    ]


def check_interface(files: Files) -> list[str]:
    axes = (BATCH_AXIS, SEQUENCE_AXIS)
    wanted_inputs = [(INPUT_IDS, "INT64", axes), (ATTENTION_MASK, "INT64", axes)]
    answered = axes if model_task(files.config).per_token else (BATCH_AXIS,)
    wanted_outputs = [(LOGITS, "FLOAT", (*answered, len(model_labels(files.config))))]
    problems = []
    for kind, values, wanted in (
        ("inputs", files.onnx.graph.input, wanted_inputs),
        ("outputs", files.onnx.graph.output, wanted_outputs),
    ):
        got = [_describe_value(value) for value in values]
        if got != wanted:
            problems.append(f"{ONNX_FILE} must have the {kind} {wanted}; got {got}")
    return problems + list(_check_script_interface(files))


def _describe_value(value: onnx.ValueInfoProto) -> tuple[str, str, tuple[str | int, ...]]:
    kind = value.type.tensor_type.elem_type
    known = kind in onnx.TensorProto.DataType.values()
    return value.name, onnx.TensorProto.DataType.Name(kind) if known else str(kind), shape_of(value)


def _check_script_interface(files: Files) -> Iterator[str]:
    forward: Any = files.torchscript.forward
    got = [(argument.name, str(argument.type)) for argument in forward.schema.arguments[1:]]
    wanted = [(INPUT_IDS, "Tensor"), (ATTENTION_MASK, "Tensor")]
    if got != wanted:
        yield f"{TORCHSCRIPT_FILE} must take {wanted}; got {got}"
    returned = [str(value.type) for value in forward.schema.returns]
    if returned != ["Tensor"]:
        yield f"{TORCHSCRIPT_FILE} must return one Tensor; got {returned}"
    script: Any = files.torchscript
    methods = script._c._method_names()
    if methods != ["forward"]:
        yield f"{TORCHSCRIPT_FILE} must have the one method forward; got {methods}"


def check_self_contained(files: Files) -> list[str]:
    return [
        f"{ONNX_FILE} keeps the tensor {tensor.name or '(unnamed)'} in another file"
        for tensor in messages(files.onnx, onnx.TensorProto)
        if tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.external_data
    ]


def check_axes(files: Files) -> list[str]:
    """Look for sizes and whole numbers that no setting of the model explains: where one stands, an axis was frozen.

    What the file says of its values is read, what follows from its nodes, and what it stores.
    """
    explained = {*model_numbers(files.eager), files.limits.max_length}
    groups = {GROUPS} if UNEVEN in files.profile.rules else set()
    sizes_explained = {*_RANKS} | explained | groups
    problems = []
    told = {value.name: shape_of(value) for value in files.onnx.graph.value_info}
    # ONNX infers 0 for the width of heads where it knows no sizes; what the file itself tells may not be 0.
    inferred = {name: tuple(size for size in sizes if size != 0) for name, sizes in files.graph.shapes.items()}
    for name, sizes in (*told.items(), *inferred.items()):
        frozen = [size for size in sizes if isinstance(size, int) and size not in sizes_explained]
        if frozen:
            problems.append(f"{ONNX_FILE}: the value {name} has sizes {sizes}; no setting explains {frozen[0]}")
    for name, values in files.graph.arrays.items():
        odd = {int(value) for value in values.reshape(-1)} if values.dtype.kind in "iu" else set()
        for number in sorted(odd - explained - {*SMALL}):
            problems.append(f"{ONNX_FILE}: {name} holds {number}; no setting explains it")
    numbers = {number for node in walk(files.script.whole) for number in _constants(node)}
    problems += [
        f"{TORCHSCRIPT_FILE}: a constant is {number}; no setting explains it"
        for number in sorted(numbers - explained - {*SMALL})
    ]
    return list(dict.fromkeys(problems))


def check_example_sizes(files: Files) -> list[str]:
    """Look for the sizes of the example that the exporter saw, as constants in either file."""
    telling = choose_example(files.eager, files.limits).telling
    problems = []
    for name, values in files.graph.arrays.items():
        if values.dtype.kind in "iu":
            found = sorted(telling & {int(value) for value in values.reshape(-1)})
            problems += [f"{ONNX_FILE}: {name} holds {size}, a size of the example" for size in found]
    for node in messages(files.onnx, onnx.NodeProto):
        for attribute in node.attribute:
            found = sorted(telling & {attribute.i, *attribute.ints})
            problems += [f"{ONNX_FILE}: {node.name}, {attribute.name} is {size}, of the example" for size in found]
    for node in walk(files.script.whole):
        found = sorted(telling & set(_constants(node)))
        problems += [f"{TORCHSCRIPT_FILE}: a constant is {size}, a size of the example" for size in found]
    return problems


def _constants(node: Any) -> Iterator[int]:
    """Yield the whole numbers of a node that is a constant."""
    if node.kind() == "prim::Constant":
        yield from _whole_numbers(node.output().toIValue())


def _whole_numbers(value: object) -> Iterator[int]:
    if type(value) is int:
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _whole_numbers(part)
