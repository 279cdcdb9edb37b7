"""Nothing stands in the files but what Ferry writes: no unknown field, no further record, no byte before or after."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import onnx

from export.archive import rewrite_archive
from export.contract import TORCHSCRIPT_METADATA_FILE
from export.files import dump_json
from export.model import CONFIG_FILE, describe_model, model_labels
from export.node_names import all_nodes, inner_graphs
from export.onnx_export import ONNX_FILE, PRODUCER
from export.proof.checks.files import Files
from export.torchscript import TORCHSCRIPT_FILE
from models.config import EncoderConfig

# The fields that are ever set, by message.
_ONNX_FIELDS: dict[str, set[str]] = {
    "ModelProto": {"ir_version", "opset_import", "producer_name", "producer_version", "graph", "metadata_props"},
    "OperatorSetIdProto": {"domain", "version"},
    "StringStringEntryProto": {"key", "value"},
    "GraphProto": {"node", "name", "initializer", "input", "output", "value_info"},
    "NodeProto": {"input", "output", "name", "op_type", "domain", "attribute"},
    "AttributeProto": {"name", "type", "f", "i", "s", "t", "g", "floats", "ints", "strings"},
    "TensorProto": {"dims", "data_type", "name", "raw_data"},
    "ValueInfoProto": {"name", "type"},
    "TypeProto": {"tensor_type"},
    "Tensor": {"elem_type", "shape"},
    "TensorShapeProto": {"dim"},
    "Dimension": {"dim_value", "dim_param"},
}
_GRAPH_NAME = "main_graph"
# Names as the exporter makes them: no blank, so no text.
_NAME = re.compile(r"[\w.*+/() -]{1,200}|")
_RECORD = re.compile(
    r"\.data/version|byteorder|constants\.pkl|data\.pkl|data/\d+|version"
    rf"|extra/{re.escape(TORCHSCRIPT_METADATA_FILE)}|code/__torch__(/\w+)+\.py"
)


def check_foreign(files: Files) -> list[str]:
    return [*_check_onnx(files), *_check_archive(files), *_check_config(files)]


def _check_onnx(files: Files) -> Iterator[str]:
    model = files.onnx
    for path, count in Counter(_unknown_fields(model)).items():
        yield f"{ONNX_FILE} carries {path} ({count} times), which Ferry does not write"
    written = (model.producer_name, model.producer_version, model.graph.name)
    wanted = (PRODUCER, files.onnx_metadata["versions"]["torch"], _GRAPH_NAME)
    if written != wanted:
        yield f"{ONNX_FILE} has producer, version and graph name {written}; it must have {wanted}"
    nodes = list(all_nodes(model.graph))
    for node in nodes:
        if node.domain:
            yield f"{ONNX_FILE} holds {node.op_type} of the domain {node.domain}; only ONNX's own operators are written"
    names = {name for node in nodes for name in (node.name, *node.output)}
    names |= {tensor.name for tensor in model.graph.initializer} | {graph.name for graph in inner_graphs(model.graph)}
    for name in sorted(name for name in names if not _NAME.fullmatch(name)):
        yield f"{ONNX_FILE} holds the name {name[:60]!r}, which no exporter gives"
    data = files.read(ONNX_FILE)
    known = onnx.ModelProto()
    known.CopyFrom(model)
    known.DiscardUnknownFields()
    again: bytes = known.SerializeToString(deterministic=True)
    if again != data:
        yield f"{ONNX_FILE} has {len(data)} bytes; what it says takes {len(again)}, written as Ferry writes it"


def _unknown_fields(message: Any) -> Iterator[str]:
    kind = message.DESCRIPTOR.name
    for field, value in message.ListFields():
        if field.name not in _ONNX_FIELDS.get(kind, set()):
            yield f"{kind}.{field.name}"
        elif field.message_type is not None:
            for part in value if field.is_repeated else [value]:
                yield from _unknown_fields(part)


def _check_archive(files: Files) -> Iterator[str]:
    names = Counter(name for name, _ in files.archive)
    for name, count in names.items():
        if not _RECORD.fullmatch(name):
            yield f"{TORCHSCRIPT_FILE} carries the record {name!r}, which Ferry does not write"
        if count > 1:
            yield f"{TORCHSCRIPT_FILE} carries the record {name!r} {count} times"
    records = dict(files.archive)
    if records.get("byteorder") != b"little":
        yield f"{TORCHSCRIPT_FILE} must be stored in little-endian order; got {records.get('byteorder')!r}"
    if max(names.values(), default=0) == 1 and rewrite_archive(files.read(TORCHSCRIPT_FILE), drop=()) != files.read(
        TORCHSCRIPT_FILE
    ):
        yield f"{TORCHSCRIPT_FILE} holds more than its records, or holds them otherwise than Ferry writes them"


def _check_config(files: Files) -> Iterator[str]:
    config = files.config
    wanted = describe_model(
        config["task"],
        EncoderConfig.from_dict(config["encoder"]),
        pooling=config["pooling"],
        head=config["head"],
        labels=model_labels(config),
        temperature=config["temperature"],
        threshold=config["threshold"],
    )
    for key in sorted(config.keys() - wanted.keys()):
        yield f"{CONFIG_FILE} carries {key}, which training does not write"
    for key in sorted(wanted.keys() - config.keys()):
        yield f"{CONFIG_FILE} lacks {key}"
    if config == wanted and dump_json(config).encode() != files.read(CONFIG_FILE):
        yield f"{CONFIG_FILE} is written otherwise than training writes it"
