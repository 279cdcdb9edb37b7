"""ONNX by the dynamo exporter: opset 23, dynamic batch and sequence, self-contained, with the metadata inside.

Needs ONNX Runtime 1.23.2 or newer, the oldest that was seen to load opset 23.
"""

from collections.abc import Iterable
from typing import Any

import onnx
import torch
from google.protobuf.message import DecodeError
from torch.export import Dim

from export.contract import (
    ATTENTION_MASK,
    BATCH_AXIS,
    INPUT_IDS,
    LOGITS,
    ONNX_METADATA_KEY,
    SEQUENCE_AXIS,
    Limits,
    canonical_json,
)

ONNX_FILE = "model.onnx"
OPSET = 23
MINIMUM_ONNXRUNTIME = "1.23.2"

# Primes that are no batch or length of verification's grid: a size frozen at export can't pass unseen.
_EXAMPLE_BATCH = 5
_EXAMPLE_LENGTH = 11


def export_onnx(model: torch.nn.Module, metadata: dict[str, Any], limits: Limits) -> bytes:
    """Export a model in eval mode into the bytes of an ONNX file that carries the metadata.

    Raises:
        ValueError: if the model is in training mode, or ONNX's checker refuses the result.
    """
    if model.training:
        raise ValueError("a model is exported in eval mode; got one in training mode. Call .eval() first.")
    length = min(_EXAMPLE_LENGTH, limits.max_length)
    # Synthetic ids, and a row with padding, so that no branch is taken for granted.
    input_ids = torch.arange(_EXAMPLE_BATCH * length).reshape(_EXAMPLE_BATCH, length) % limits.vocab_size
    attention_mask = torch.ones_like(input_ids)
    attention_mask[0, length // 2 + 1 :] = 0
    axes = {0: Dim(BATCH_AXIS), 1: Dim(SEQUENCE_AXIS, max=limits.max_length)}
    program = torch.onnx.export(
        model,
        (input_ids, attention_mask),
        input_names=[INPUT_IDS, ATTENTION_MASK],
        output_names=[LOGITS],
        dynamic_shapes=(axes, axes),
        opset_version=OPSET,
        dynamo=True,
        external_data=False,
        verbose=False,
    )
    assert program is not None
    proto = program.model_proto
    _strip(proto)
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
        ValueError: if the bytes are not an ONNX model.
    """
    try:
        return onnx.load_from_string(data)
    except DecodeError as error:
        raise ValueError(f"{ONNX_FILE} is damaged: {error}") from None


def _strip(proto: onnx.ModelProto) -> None:
    """Drop the exporter's notes on nodes, values and graphs: they hold source paths."""
    _strip_notes([proto, *proto.functions])
    for function in proto.functions:
        _strip_nodes(function.node)
    _strip_graph(proto.graph)


def _strip_graph(graph: onnx.GraphProto) -> None:
    _strip_notes([graph, *graph.input, *graph.output, *graph.value_info, *graph.initializer])
    _strip_nodes(graph.node)


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
