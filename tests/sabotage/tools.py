"""What the attacker works with: ONNX graphs, torch's archives, JSON files, and models of his own making."""

import io
import json
import zipfile
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper
from torch import nn

from export.capture import capture
from export.contract import (
    LOGITS,
    ONNX_METADATA_KEY,
    PT2_METADATA_FILE,
    TORCHSCRIPT_METADATA_FILE,
    canonical_json,
)
from export.files import dump_json
from export.model import CONFIG_FILE, WEIGHTS_FILE, model_limits, restore_model
from export.node_names import all_nodes, inner_graphs
from export.onnx_export import ONNX_FILE, export_onnx
from export.pt2 import PT2_FILE, export_pt2
from export.torchscript import TORCHSCRIPT_FILE, export_torchscript
from tests.sabotage.artifact import Contents

# What a model file is called in the name of a fault.
SHORT = {TORCHSCRIPT_FILE: "pt", ONNX_FILE: "onnx", PT2_FILE: "pt2"}
Entries = list[tuple[str, bytes]]
METADATA_RECORDS = {
    TORCHSCRIPT_FILE: f"archive/extra/{TORCHSCRIPT_METADATA_FILE}",
    PT2_FILE: f"archive/extra/{PT2_METADATA_FILE}",
}

# A model of the attacker's in each format; he knows the exporters.
EXPORTS: dict[str, Callable[[nn.Module, Contents], bytes]] = {
    TORCHSCRIPT_FILE: lambda model, contents: export_torchscript(model, onnx_metadata(contents)),
    ONNX_FILE: lambda model, contents: export_onnx(capture(model, limits_of(contents)), onnx_metadata(contents)),
    PT2_FILE: lambda model, contents: export_pt2(capture(model, limits_of(contents)), onnx_metadata(contents)),
}


def formats(place: int, *, everywhere: bool) -> list[str]:
    """Return the model files that a fault is planted in: each in turn, or every one, each by itself."""
    files = list(SHORT)
    return files if everywhere else [files[place % len(files)]]


def limits_of(contents: Contents) -> Any:
    return model_limits(json.loads(contents[CONFIG_FILE]))


def edit_json(contents: Contents, name: str, edit: Callable[[Any], object]) -> None:
    """Change a JSON file and write it as Ferry writes it."""
    document = json.loads(contents[name])
    edit(document)
    contents[name] = dump_json(document).encode()


def honest_model(contents: Contents) -> nn.Module:
    """Return the eager model that the files describe."""
    model: nn.Module = restore_model(json.loads(contents[CONFIG_FILE]), contents[WEIGHTS_FILE])
    return model


def export_twin(contents: Contents, file: str, change: Callable[[nn.Module], object]) -> None:
    """Export the model anew with something changed, under the genuine metadata."""
    model = honest_model(contents)
    change(model)
    contents[file] = EXPORTS[file](model, contents)


def onnx_metadata(contents: Contents) -> dict[str, Any]:
    model = onnx.load_from_string(contents[ONNX_FILE])
    metadata: dict[str, Any] = json.loads(
        next(entry.value for entry in model.metadata_props if entry.key == ONNX_METADATA_KEY)
    )
    return metadata


def edit_onnx(contents: Contents, edit: Callable[[onnx.ModelProto], object]) -> None:
    model = onnx.load_from_string(contents[ONNX_FILE])
    edit(model)
    contents[ONNX_FILE] = model.SerializeToString(deterministic=True)


def set_metadata(contents: Contents, name: str, metadata: dict[str, Any]) -> None:
    """Put a metadata document into one model file, if that carries one."""
    text = canonical_json(metadata)
    if name == ONNX_FILE:
        edit_onnx(contents, lambda model: onnx.helper.set_model_props(model, {ONNX_METADATA_KEY: text}))
    else:
        replace_record(contents, name, METADATA_RECORDS[name], lambda _: text.encode())


def read_records(contents: Contents, file: str) -> Entries:
    """Return the records of an archive by name, in order."""
    with zipfile.ZipFile(io.BytesIO(contents[file])) as archive:
        return [(name, archive.read(name)) for name in archive.namelist()]


def write_records(contents: Contents, file: str, entries: Entries, compression: int = zipfile.ZIP_STORED) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, data in entries:
            entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            entry.compress_type = compression
            # As torch does it: records begin at multiples of 64 bytes.
            padding = -(buffer.tell() + 34 + len(name.encode())) % 64
            entry.extra = b"FB" + padding.to_bytes(2, "little") + b"Z" * padding
            archive.writestr(entry, data)
    contents[file] = buffer.getvalue()


def replace_record(contents: Contents, file: str, name: str, edit: Callable[[bytes], bytes]) -> None:
    entries = read_records(contents, file)
    assert name in dict(entries), name
    write_records(contents, file, [(other, edit(data) if other == name else data) for other, data in entries])


def edit_code(contents: Contents, module: str, old: str, new: str) -> None:
    """Replace text in the TorchScript code of a module, models.packing say; it must stand there."""

    def edit(data: bytes) -> bytes:
        text = data.decode()
        assert old in text, f"{module} does not hold {old!r}:\n{text}"
        return text.replace(old, new).encode()

    replace_record(contents, TORCHSCRIPT_FILE, f"archive/code/__torch__/{module.replace('.', '/')}.py", edit)


def insert(model: onnx.ModelProto, nodes: Sequence[onnx.NodeProto], old: str, new: str) -> None:
    """Put nodes in front of the graph, and let every node that was there read `new` where it read `old`."""
    for node in model.graph.node:
        for index, name in enumerate(node.input):
            if name == old:
                node.input[index] = new
    for position, node in enumerate(nodes):
        model.graph.node.insert(position, node)


def append(model: onnx.ModelProto, nodes: Sequence[onnx.NodeProto]) -> None:
    """Let nodes turn `clean`, the true output, into the output."""
    for node in model.graph.node:
        for index, name in enumerate(node.output):
            if name == LOGITS:
                node.output[index] = "clean"
    model.graph.node.extend(nodes)


def constant(model: onnx.ModelProto, name: str, values: npt.ArrayLike, dtype: npt.DTypeLike) -> None:
    model.graph.initializer.append(numpy_helper.from_array(np.array(values, dtype), name))


def initializer(model: onnx.ModelProto, name: str) -> onnx.TensorProto:
    return next(tensor for tensor in model.graph.initializer if tensor.name == name)


def nodes_of(model: onnx.ModelProto, operator: str) -> list[onnx.NodeProto]:
    """Return the nodes of one operator, those in branches too."""
    found = [node for node in all_nodes(model.graph) if node.op_type == operator]
    assert found, operator
    return found


def home_of(model: onnx.ModelProto, node: onnx.NodeProto) -> onnx.GraphProto:
    """Return the graph that holds a node: the model's, or a branch."""
    return next(
        graph
        for graph in (model.graph, *inner_graphs(model.graph))
        if any(node.output[0] in other.output for other in graph.node)
    )


def set_attribute(node: onnx.NodeProto, name: str, value: object) -> None:
    kept = [attribute for attribute in node.attribute if attribute.name != name]
    del node.attribute[:]
    node.attribute.extend([*kept, onnx.helper.make_attribute(name, value)])


def disguise(genuine: type[nn.Module]) -> Callable[[type[nn.Module]], type[nn.Module]]:
    """Give a class the name of the genuine one, so that the name does not give it away in the file."""

    def rename(twin: type[nn.Module]) -> type[nn.Module]:
        twin.__module__, twin.__name__, twin.__qualname__ = genuine.__module__, genuine.__name__, genuine.__qualname__
        return twin

    return rename


def disguise_all(parent: type[nn.Module], genuine: type[nn.Module]) -> None:
    """Disguise every class that derives from `parent`."""
    for twin in parent.__subclasses__():
        disguise(genuine)(twin)


def become(kind: type[nn.Module], twin: type[nn.Module], *, first_only: bool = False) -> Callable[[nn.Module], None]:
    """Turn every module of a kind into its twin, which keeps names and weights."""

    def change(model: nn.Module) -> None:
        found = [module for module in model.modules() if type(module) is kind]
        assert found, kind
        for module in found[:1] if first_only else found:
            module.__class__ = twin

    return change
