"""ONNX by the dynamo exporter: dynamic batch and sequence, self-contained, with the metadata inside.

The profile says which opset and form it has in the end.
"""

from collections.abc import Iterable
from typing import Any

import onnx
import torch
from google.protobuf.message import DecodeError
from torch.export import ExportedProgram

from export.contract import (
    ATTENTION_MASK,
    BATCH_AXIS,
    INPUT_IDS,
    LOGITS,
    ONNX_METADATA_KEY,
    SEQUENCE_AXIS,
    canonical_json,
)
from export.node_names import all_nodes, name_nodes
from export.profiles import DEFAULT_PROFILE, PROFILES, Profile
from export.rewrite import rewrite

ONNX_FILE = "model.onnx"
PRODUCER = "pytorch"
# What the exporter writes; the rules start from its operators.
_WRITTEN_OPSET = 23


def export_onnx(
    program: ExportedProgram, metadata: dict[str, Any], profile: Profile = PROFILES[DEFAULT_PROFILE]
) -> bytes:
    """Write a captured model as the bytes of an ONNX file that carries the metadata.

    A program can be written as ONNX once: the exporter uses its symbols up. As .pt2 it can be written before or after.

    Args:
        program: from `capture`.
        metadata: what the file carries, as `build_metadata` makes it for this profile.
        profile: the form of the graph.

    Raises:
        ValueError: if ONNX's checker refuses the result.
    """
    names = {0: BATCH_AXIS, 1: SEQUENCE_AXIS}
    written = torch.onnx.export(
        program,
        input_names=[INPUT_IDS, ATTENTION_MASK],
        output_names=[LOGITS],
        dynamic_shapes=(names, names),
        opset_version=_WRITTEN_OPSET,
        dynamo=True,
        external_data=False,
        verbose=False,
    )
    assert written is not None
    rewrite(written.model, profile.rules)
    written.model.opset_imports[""] = profile.opset
    written.model.ir_version = profile.ir_version
    proto = written.model_proto
    tensors = [*program.named_parameters(), *program.named_buffers()]
    name_nodes(proto.graph, {name.rpartition(".")[0] for name, _ in tensors})
    _strip(proto)
    _drop_empty_sizes(proto.graph)
    # One file, whichever build of torch wrote it: CPU or CUDA.
    proto.producer_version = proto.producer_version.partition("+")[0]
    onnx.helper.set_model_props(proto, {ONNX_METADATA_KEY: canonical_json(metadata)})
    try:
        onnx.checker.check_model(proto, full_check=True)
    except onnx.checker.ValidationError as error:
        raise ValueError(f"ONNX's checker refuses the exported graph: {error}") from None
    data: bytes = proto.SerializeToString(deterministic=True)
    return data


def read_onnx(data: bytes) -> onnx.ModelProto:
    """Parse an ONNX file.

    Raises:
        ValueError: if the bytes are not an ONNX model, or one that may run for ever.
    """
    try:
        model = onnx.load_from_string(data)
    except DecodeError as error:
        raise ValueError(f"{ONNX_FILE} is damaged: {error}") from None
    for graph in (model.graph, *model.functions):
        for node in all_nodes(graph):
            # Ferry's graphs have none.
            if node.op_type == "Loop":
                raise ValueError(f"{ONNX_FILE} holds a loop ({node.name or 'without name'}), which may run for ever")
    return model


def _strip(proto: onnx.ModelProto) -> None:
    """Drop the exporter's notes on nodes, values and graphs: they hold source paths."""
    _strip_notes([proto, *proto.functions])
    for function in proto.functions:
        _strip_nodes(function.node)
    _strip_graph(proto.graph)


def _strip_graph(graph: onnx.GraphProto) -> None:
    _strip_notes([graph, *graph.input, *graph.output, *graph.value_info, *graph.initializer])
    _strip_nodes(graph.node)


def _drop_empty_sizes(graph: onnx.GraphProto) -> None:
    """Drop what the exporter says of values whose size it takes for 0: they depend on the input, as the rest shows."""
    kept = [value for value in graph.value_info if all(size != 0 for size in shape_of(value))]
    del graph.value_info[:]
    graph.value_info.extend(kept)


def shape_of(value: onnx.ValueInfoProto) -> tuple[int | str, ...]:
    """Return the sizes of a value, names for those that vary; an unnamed one is "?"."""
    sizes = value.type.tensor_type.shape.dim
    return tuple(size.dim_value if size.HasField("dim_value") else size.dim_param or "?" for size in sizes)


def _strip_nodes(nodes: Iterable[onnx.NodeProto]) -> None:
    for node in nodes:
        _strip_notes([node])
        for attribute in node.attribute:
            for graph in [attribute.g, *attribute.graphs] if attribute.HasField("g") else attribute.graphs:
                _strip_graph(graph)


def _strip_notes(parts: Iterable[Any]) -> None:
    for part in parts:
        part.ClearField("metadata_props")
        part.ClearField("doc_string")
