"""Changes to a .pt2 archive, as one would make them who plants a fault in it."""

import io
import json
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

from export.archive import rewrite_archive

GRAPH = "archive/models/model.json"
WEIGHTS = "archive/data/weights/model_weights_config.json"
CONSTANTS = "archive/data/constants/model_constants_config.json"


def read_records(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write_records(records: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in records.items():
            archive.writestr(name, content)
    return rewrite_archive(buffer.getvalue(), drop=())


def edit_records(data: bytes, edit: Callable[[dict[str, bytes]], None]) -> bytes:
    records = read_records(data)
    edit(records)
    return write_records(records)


def edit_json(data: bytes, edit: Callable[[Any], None], name: str = GRAPH) -> bytes:
    """Change one of the archive's JSON documents."""

    def change(records: dict[str, bytes]) -> None:
        document = json.loads(records[name])
        edit(document)
        records[name] = json.dumps(document).encode()

    return edit_records(data, change)


def nodes_of(document: Any, operator: str) -> Iterator[Any]:
    """Yield the nodes of an operator, such as `layer_norm`, from the graph's document."""
    for node in document["graph_module"]["graph"]["nodes"]:
        if node["target"].split(".")[-2:-1] == [operator]:
            yield node


def argument(node: Any, name: str) -> Any:
    """Return what a node is told by an argument, a dictionary of one entry that may be changed."""
    return next(entry["arg"] for entry in node["inputs"] if entry["name"] == name)
