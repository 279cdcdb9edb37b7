"""Ways to plant faults in a model's files, as an attacker who may rewrite anything but the weights would."""

import io
import json
import warnings
import zipfile
from collections.abc import Callable
from typing import Any

import onnx
from onnx import helper
from torch import nn

from export.archive import rewrite_archive
from export.contract import ONNX_METADATA_KEY, canonical_json
from export.pt2 import PT2_FILE
from export.torchscript import TORCHSCRIPT_FILE
from tests.export.proof.subjects import metadata_of
from tests.sabotage import tools
from tests.sabotage.tools import edit_onnx, export_twin

Files = dict[str, bytes]
Plant = Callable[[Files], None]


def onnx_fault(edit: Callable[[onnx.ModelProto], None]) -> Plant:
    return lambda files: edit_onnx(files, edit)


def edit_code(module: str, old: str, new: str) -> Plant:
    """Rewrite the code of a module inside model.pt."""

    def plant(files: Files) -> None:
        before = files[TORCHSCRIPT_FILE]
        edit_records(
            files,
            lambda name, data: data.replace(old.encode(), new.encode()) if name.endswith(f"/{module}.py") else data,
        )
        assert files[TORCHSCRIPT_FILE] != before, f"{module} does not say {old}"

    return plant


def edit_records(
    files: Files,
    edit: Callable[[str, bytes], bytes],
    extra: dict[str, bytes] | None = None,
    file: str = TORCHSCRIPT_FILE,
) -> None:
    """Rewrite the records of an archive of torch's, and add some; it is written as Ferry writes it if it can be."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(files[file])) as source, zipfile.ZipFile(buffer, "w") as target:
        names = source.namelist()
        for name in names:
            target.writestr(name, edit(name, source.read(name)))
        for name, data in (extra or {}).items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a name that stands twice is one of the faults
                target.writestr(name, data)
    twice = any(name in names for name in extra or {})
    files[file] = buffer.getvalue() if twice else rewrite_archive(buffer.getvalue(), drop=())


def add_record(name: str, data: bytes, file: str = TORCHSCRIPT_FILE) -> Plant:
    return lambda files: edit_records(files, lambda _, kept: kept, {name: data}, file)


def edit_record(file: str, name: str, edit: Callable[[bytes], bytes]) -> Plant:
    return lambda files: tools.replace_record(files, file, f"archive/{name}", edit)


def rescript(change: Callable[[nn.Module], object]) -> Plant:
    return lambda files: export_twin(files, TORCHSCRIPT_FILE, change)


def node(model: onnx.ModelProto, operator: str, number: int = 0) -> onnx.NodeProto:
    """Return a node of one operator, those in branches too."""
    return tools.nodes_of(model, operator)[number]


def named(model: onnx.ModelProto, name: str) -> onnx.NodeProto:
    return next(node for node in model.graph.node if node.name == name)


def set_attribute(operator: str, name: str, value: object, number: int = 0) -> Plant:
    return onnx_fault(lambda model: tools.set_attribute(node(model, operator, number), name, value))


def swap_inputs(operator: str, first: int, second: int, number: int = 0) -> Plant:
    def edit(model: onnx.ModelProto) -> None:
        taken = node(model, operator, number).input
        taken[first], taken[second] = taken[second], taken[first]

    return onnx_fault(edit)


def set_metadata(edit: Callable[[dict[str, Any]], object]) -> Plant:
    """Change the metadata in every model file alike."""

    def plant(files: Files) -> None:
        metadata = metadata_of(files)
        edit(metadata)
        text = canonical_json(metadata)
        edit_onnx(files, lambda model: helper.set_model_props(model, {ONNX_METADATA_KEY: text}))
        for file in (TORCHSCRIPT_FILE, PT2_FILE):
            edit_records(files, lambda name, data: text.encode() if name.endswith("/ferry.json") else data, file=file)

    return plant


def edit_pt2(edit: Callable[[dict[str, Any]], object]) -> Plant:
    """Rewrite the graph of model.pt2; `edit` takes its JSON."""

    def plant(files: Files) -> None:
        def edited(name: str, data: bytes) -> bytes:
            if not name.endswith("/model.json"):
                return data
            document = json.loads(data)
            edit(document["graph_module"]["graph"])
            return json.dumps(document).encode()

        edit_records(files, edited, file=PT2_FILE)

    return plant


def set_argument(operator: str, name: str, value: dict[str, Any], number: int = 0) -> Plant:
    """Give an operator of model.pt2 another argument, or one that it lacked."""

    def edit(graph: dict[str, Any]) -> None:
        call = [call for call in graph["nodes"] if f".{operator}." in call["target"]][number]
        kept = [argument for argument in call["inputs"] if argument["name"] != name]
        old = [place for place, argument in enumerate(call["inputs"]) if argument["name"] == name]
        kind = call["inputs"][old[0]]["kind"] if old else 2
        kept.insert(old[0] if old else len(kept), {"name": name, "arg": value, "kind": kind})
        call["inputs"] = kept

    return edit_pt2(edit)


def set_file(name: str, data: bytes) -> Plant:
    return lambda files: files.update({name: data})


def append_bytes(name: str, data: bytes) -> Plant:
    return lambda files: files.update({name: files[name] + data})
