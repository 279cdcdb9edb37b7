"""Everything TorchScript: the export, the metadata, the loading.

The module is scripted, never traced: tracing would keep the example's devices and slice bounds. It is in eval mode and
not frozen: a frozen module has no parameters, so `.to(device)` would be silently without effect.
"""

import io
import json
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import torch

from export.archive import rewrite_archive
from export.contract import TORCHSCRIPT_METADATA_FILE, canonical_json

TORCHSCRIPT_FILE = "model.pt"
# libtorch reads only what its own or an older release wrote.
MINIMUM_LIBTORCH = torch.__version__.partition("+")[0]

# Source paths, and an id that is drawn anew each time.
_TRACES = (".debug_pkl", ".data/serialization_id")

# Bytes of one file of code; those of the largest models have some tens of thousands.
_MOST_CODE = 2**24

# What torch.jit.script keeps for the whole process: (module, attribute, how it begins).
_SHARED: tuple[tuple[ModuleType, str, Callable[[], object]], ...] = (
    (torch.jit._state, "_python_cu", torch._C.CompilationUnit),
    (torch.jit._state, "_script_classes", dict),
    (torch.jit._state, "_name_to_pyclass", dict),
    (torch.jit._state, "_jit_caching_layer", WeakKeyDictionary),
    (torch.jit._state, "_jit_function_overload_caching", WeakKeyDictionary),
    (torch.jit._recursive, "concrete_type_store", torch.jit._recursive.ConcreteTypeStore),
)


def export_torchscript(model: torch.nn.Module, metadata: dict[str, Any]) -> bytes:
    """Script a model in eval mode into the bytes of a TorchScript archive that carries the metadata.

    The bytes are a function of the model, the metadata and the seed of the process' string hashes.
    """
    with _nothing_shared():
        scripted = torch.jit.script(model)
    buffer = io.BytesIO()
    torch.jit.save(scripted, buffer, _extra_files={TORCHSCRIPT_METADATA_FILE: canonical_json(metadata)})
    return rewrite_archive(buffer.getvalue(), drop=_TRACES)


@contextmanager
def _nothing_shared() -> Iterator[None]:
    """Hide what was scripted in this process before.

    torch lets equal modules share a type and equal functions a graph, and both keep what earlier uses did to them:
    the methods that another model called, the numbers of values. What has a name already gets another one.
    """
    before = [(module, name, getattr(module, name)) for module, name, _ in _SHARED]
    try:
        for module, name, empty in _SHARED:
            setattr(module, name, empty())
        yield
    finally:
        for module, name, content in before:
            setattr(module, name, content)


def load_torchscript(data: bytes) -> tuple[torch.jit.ScriptModule, dict[str, Any]]:
    """Load a TorchScript archive onto the CPU, with its metadata.

    Raises:
        ValueError: if the bytes are damaged, carry no metadata of ours, or hold a loop, which may run for ever.
    """
    _refuse_loops(data)
    extra: dict[str, Any] = {TORCHSCRIPT_METADATA_FILE: ""}
    try:
        module = torch.jit.load(  # type: ignore[no-untyped-call]
            io.BytesIO(data), map_location="cpu", _extra_files=extra
        )
        metadata = json.loads(extra[TORCHSCRIPT_METADATA_FILE])
    except (RuntimeError, json.JSONDecodeError, UnicodeDecodeError) as error:
        first_line = str(error).strip().partition("\n")[0]
        raise ValueError(f"{TORCHSCRIPT_FILE} is damaged or not of Ferry's making: {first_line}") from None
    return module, metadata


def _refuse_loops(data: bytes) -> None:
    """Refuse code with a loop before any of it is run. Ferry's models have none: a loop over modules is unrolled."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for entry in archive.infolist():
                if not entry.filename.endswith(".py"):
                    continue
                if entry.file_size > _MOST_CODE:
                    raise ValueError(f"{TORCHSCRIPT_FILE} holds more code than any model has ({entry.filename})")
                # Loading runs code too, so it is read as text and not as a graph.
                if re.search(rb"\b(for|while)\b", archive.read(entry)):
                    raise ValueError(f"{TORCHSCRIPT_FILE} holds a loop ({entry.filename}), which may run for ever")
    except (zipfile.BadZipFile, NotImplementedError, EOFError, zlib.error, RuntimeError) as error:
        raise ValueError(f"{TORCHSCRIPT_FILE} is damaged or not of Ferry's making: {error}") from None
