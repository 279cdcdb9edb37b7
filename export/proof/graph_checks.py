"""What running can't show: the structure of the two model files, their metadata, and what must not be in them.

One table, CHECKS, holds a row for each check. A check reads bytes and returns the problems it found.
"""

import io
import json
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import onnx
import torch
from torch import nn

from export.artifact.weights import compare_weights, same_bits
from export.contract import (
    ATTENTION_MASK,
    BATCH_AXIS,
    INPUT_IDS,
    LOGITS,
    ONNX_METADATA_KEY,
    SEQUENCE_AXIS,
    TOKENIZER_FILE,
)
from export.files import sha256_bytes
from export.model import CONFIG_FILE, WEIGHTS_FILE, model_labels, model_metadata, model_task
from export.onnx_export import ONNX_FILE, OPSET, read_onnx
from export.proof.runtimes import BackendError, Read, load_eager_model
from export.torchscript import TORCHSCRIPT_FILE, load_torchscript

# What the exporter writes and ONNX Runtime 1.23.2, the oldest promised, was seen to load.
IR_VERSION = 10

_PATH = re.compile(rb"(?<![\w.)\]/:-])/(?:[\w.+-]+/)+[\w.+-]*|[A-Za-z]:\\\\?[\w.+-]+\\|(?:site|dist)-packages")
_STACK_TRACE = b"stack_trace"
_RANDOM_OPERATORS = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """The outcome of one check; it passed if `problems` is empty."""

    name: str
    problems: tuple[str, ...]


class Files:
    """The files under judgement, parsed on first use.

    What can't be parsed raises ValueError.
    """

    def __init__(self, read: Read) -> None:
        """Take a function that gives the bytes of a file by its name."""
        self.read = read

    @cached_property
    def config(self) -> dict[str, Any]:
        config: dict[str, Any] = json.loads(self.read(CONFIG_FILE))
        return config

    @cached_property
    def onnx(self) -> onnx.ModelProto:
        return read_onnx(self.read(ONNX_FILE))

    @cached_property
    def torchscript(self) -> torch.jit.ScriptModule:
        return load_torchscript(self.read(TORCHSCRIPT_FILE))[0]

    @cached_property
    def onnx_metadata(self) -> dict[str, Any]:
        values = [entry.value for entry in self.onnx.metadata_props if entry.key == ONNX_METADATA_KEY]
        if len(values) != 1:
            raise ValueError(f"{ONNX_FILE} must carry one metadata entry {ONNX_METADATA_KEY}; got {len(values)}")
        metadata: dict[str, Any] = json.loads(values[0])
        return metadata

    @cached_property
    def torchscript_metadata(self) -> dict[str, Any]:
        return load_torchscript(self.read(TORCHSCRIPT_FILE))[1]

    @cached_property
    def eager(self) -> nn.Module:
        return load_eager_model(self.read)


def check_files(read: Read) -> list[CheckResult]:
    """Run every check of the table on the files that `read` gives by name."""
    files = Files(read)
    results = []
    for name, check in CHECKS.items():
        try:
            problems = check(files)
        except (ValueError, KeyError, TypeError, BackendError) as error:
            problems = [f"can't be checked: {error}"]
        results.append(CheckResult(name=name, problems=tuple(problems)))
    return results


def _check_onnx(files: Files) -> list[str]:
    try:
        onnx.checker.check_model(files.onnx, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        return [f"{ONNX_FILE} is refused by onnx.checker: {str(error).strip().splitlines()[0]}"]
    return []


def _check_versions(files: Files) -> list[str]:
    opsets = {entry.domain or "ai.onnx": entry.version for entry in files.onnx.opset_import}
    problems = []
    if opsets != {"ai.onnx": OPSET}:
        problems.append(f"{ONNX_FILE} must import opset {OPSET} of ai.onnx and nothing else; got {opsets}")
    if files.onnx.ir_version != IR_VERSION:
        problems.append(f"{ONNX_FILE} must be of IR version {IR_VERSION}; got {files.onnx.ir_version}")
    return problems


def _check_interface(files: Files) -> list[str]:
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
    forward: Any = files.torchscript.forward
    arguments = [argument.name for argument in forward.schema.arguments[1:]]
    if arguments != [INPUT_IDS, ATTENTION_MASK]:
        problems.append(f"{TORCHSCRIPT_FILE} must take {INPUT_IDS}, {ATTENTION_MASK}; got {', '.join(arguments)}")
    return problems


def _describe_value(value: onnx.ValueInfoProto) -> tuple[str, str, tuple[str | int, ...]]:
    tensor = value.type.tensor_type
    dims = tuple(dim.dim_param or dim.dim_value for dim in tensor.shape.dim)
    return value.name, onnx.TensorProto.DataType.Name(tensor.elem_type), dims


def _check_self_contained(files: Files) -> list[str]:
    return [
        f"{ONNX_FILE} keeps the tensor {tensor.name or '(unnamed)'} in another file"
        for tensor in _messages(files.onnx, onnx.TensorProto)
        if tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.external_data
    ]


def _check_no_traces(files: Files) -> list[str]:
    """Look for source paths and the exporter's notes: they tell where and by whom a file was made."""
    problems = []
    for entry in files.onnx.metadata_props:
        if entry.key != ONNX_METADATA_KEY:
            problems.append(f"{ONNX_FILE} carries a metadata entry {entry.key}")
    for kind in (onnx.GraphProto, onnx.NodeProto, onnx.ValueInfoProto, onnx.TensorProto, onnx.FunctionProto):
        noted = [part for part in _messages(files.onnx, kind) if part.metadata_props or part.doc_string]
        if noted:
            problems.append(f"{ONNX_FILE} carries the exporter's notes on {len(noted)} parts of kind {kind.__name__}")
    bare = onnx.ModelProto()
    bare.CopyFrom(files.onnx)
    for tensor in _messages(bare, onnx.TensorProto):
        tensor.ClearField("raw_data")
    problems += _find_traces(ONNX_FILE, bare.SerializeToString())
    for name, data in _archive_entries(files.read(TORCHSCRIPT_FILE)):
        if name.endswith(".debug_pkl"):
            problems.append(f"{TORCHSCRIPT_FILE} carries the source positions {name}")
        elif not re.fullmatch(r"[^/]+/data/\d+", name):
            problems += _find_traces(f"{TORCHSCRIPT_FILE}, {name}", data)
    return problems


def _archive_entries(data: bytes) -> list[tuple[str, bytes]]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return [(name, archive.read(name)) for name in archive.namelist()]
    except zipfile.BadZipFile as error:
        raise ValueError(f"{TORCHSCRIPT_FILE} is damaged: {error}") from None


def _find_traces(where: str, data: bytes) -> list[str]:
    traces = sorted({match.group().decode("ascii", "replace") for match in _PATH.finditer(data)})
    if _STACK_TRACE in data:
        traces.append(_STACK_TRACE.decode())
    return [f"{where} holds {trace!r}" for trace in traces]


def _check_inference_mode(files: Files) -> list[str]:
    problems = []
    for node in _messages(files.onnx, onnx.NodeProto):
        training = any(attribute.name == "training_mode" and attribute.i for attribute in node.attribute)
        if node.op_type == "Dropout" or node.op_type in _RANDOM_OPERATORS or training:
            problems.append(f"{ONNX_FILE} holds the training-mode node {node.op_type} {node.name}")
    for name, module in files.torchscript.named_modules():
        if module.training:
            problems.append(f"{TORCHSCRIPT_FILE} is in training mode at {name or 'its root'}")
    return problems


def _check_metadata(files: Files) -> list[str]:
    config = files.config
    # The rest follows from the files; these two tell of the exporter and can only be repeated.
    told = files.onnx_metadata
    wanted = model_metadata(
        config,
        tokenizer_sha256=sha256_bytes(files.read(TOKENIZER_FILE)),
        weights_sha256=sha256_bytes(files.read(WEIGHTS_FILE)),
        versions=told["versions"],
        minimum_runtime=told["minimum_runtime"],
    )
    problems = [
        *_differences(ONNX_FILE, told, wanted),
        *_differences(TORCHSCRIPT_FILE, files.torchscript_metadata, wanted),
    ]
    inverse = {label: index for index, label in enumerate(model_labels(config))}
    if config["label2id"] != inverse:
        problems.append(f"{CONFIG_FILE}: label2id is not the inverse of id2label")
    return problems


def _differences(where: str, got: object, wanted: object, path: str = "metadata") -> Iterator[str]:
    if isinstance(got, dict) and isinstance(wanted, dict):
        for key in sorted(got.keys() | wanted.keys()):
            if key not in got or key not in wanted:
                yield f"{where}: {path}.{key} is {'missing' if key not in got else 'unknown'}"
            else:
                yield from _differences(where, got[key], wanted[key], f"{path}.{key}")
    elif got != wanted:
        yield f"{where}: {path} is {_shorten(got)}; the files say {_shorten(wanted)}"


def _shorten(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _check_weights(files: Files) -> list[str]:
    return compare_weights(files.read(WEIGHTS_FILE), files.read(TORCHSCRIPT_FILE), files.read(ONNX_FILE))


def _check_tables(files: Files) -> list[str]:
    """Compare what is stored beside the weights, such as position tables, with the eager model's."""
    wanted = {name: buffer.numpy() for name, buffer in files.eager.named_buffers()}
    got = {name: buffer.numpy() for name, buffer in files.torchscript.named_buffers()}
    problems = [f"{TORCHSCRIPT_FILE} lacks the table {name}" for name in sorted(wanted.keys() - got.keys())]
    problems += [f"{TORCHSCRIPT_FILE} holds the unknown table {name}" for name in sorted(got.keys() - wanted.keys())]
    return problems + [
        f"{TORCHSCRIPT_FILE} has other values in the table {name}"
        for name in sorted(wanted.keys() & got.keys())
        if not same_bits(got[name], wanted[name])
    ]


def _check_epsilon(files: Files) -> list[str]:
    """Compare LayerNorm's epsilon: a wrong one moves the logits by less than rounding does, on common inputs."""
    wanted = Counter(_rounded(norm.eps) for norm in files.eager.modules() if isinstance(norm, nn.LayerNorm))
    in_onnx = Counter(
        _rounded(next((attribute.f for attribute in node.attribute if attribute.name == "epsilon"), 1e-5))
        for node in _messages(files.onnx, onnx.NodeProto)
        if node.op_type == "LayerNormalization"
    )
    # The graph must outlive the values that are read from it.
    graph: Any = files.torchscript.inlined_graph
    in_torchscript = Counter(_rounded(_argument(node, "eps")) for node in graph.findAllNodes("aten::layer_norm"))
    return [
        f"{name} has LayerNorm epsilons (value: count) {dict(got)}; the model has {dict(wanted)}"
        for name, got in ((ONNX_FILE, in_onnx), (TORCHSCRIPT_FILE, in_torchscript))
        if got != wanted
    ]


def _argument(node: Any, name: str) -> Any:
    """Return a constant argument of a TorchScript node; None if it is no constant."""
    names = [argument.name for argument in torch._C.parse_schema(node.schema()).arguments]
    return list(node.inputs())[names.index(name)].toIValue()


def _rounded(value: float | None) -> float | None:
    # ONNX stores attributes in float32.
    return None if value is None else float(f"{np.float32(value):.6g}")


def _messages(message: Any, kind: type[Any]) -> Iterator[Any]:
    """Yield every protobuf message of a kind inside another, however deep."""
    if isinstance(message, kind):
        yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in value if field.is_repeated else [value]:
                yield from _messages(part, kind)


CHECKS: dict[str, Callable[[Files], list[str]]] = {
    "onnx.checker": _check_onnx,
    "opset and IR version": _check_versions,
    "inputs, outputs, axes": _check_interface,
    "self-contained": _check_self_contained,
    "no source paths": _check_no_traces,
    "inference mode": _check_inference_mode,
    "metadata": _check_metadata,
    "weights": _check_weights,
    "tables": _check_tables,
    "LayerNorm epsilon": _check_epsilon,
}
