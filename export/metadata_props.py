"""What is added to the metadata of a file that was made of another."""

import json
from typing import Any

import onnx

from export.contract import ONNX_METADATA_KEY, canonical_json


def add_metadata(proto: onnx.ModelProto, told: dict[str, Any]) -> None:
    """Add entries to the metadata that a model carries."""
    entries = {entry.key: entry.value for entry in proto.metadata_props}
    document = json.loads(entries.get(ONNX_METADATA_KEY, "{}")) | told
    onnx.helper.set_model_props(proto, {**entries, ONNX_METADATA_KEY: canonical_json(document)})
