"""Everything TorchScript: the export, the metadata, the loading.

The module is scripted, never traced: tracing would keep the example's devices and slice bounds. It is in eval mode and
not frozen: a frozen module has no parameters, so `.to(device)` would be silently without effect.
"""

import io
import json
import zipfile
from typing import Any

import torch

from export.contract import TORCHSCRIPT_METADATA_FILE, canonical_json

TORCHSCRIPT_FILE = "model.pt"
# libtorch reads only what its own or an older release wrote.
MINIMUM_LIBTORCH = torch.__version__.partition("+")[0]

_ALIGNMENT = 64
_ZIP_HEADER_SIZE = 30
_EXTRA_HEADER_SIZE = 4


def export_torchscript(model: torch.nn.Module, metadata: dict[str, Any]) -> bytes:
    """Script a model in eval mode into the bytes of a TorchScript archive that carries the metadata.

    The bytes are a function of the model and the metadata, if nothing was scripted in this process before: a second
    script in one process gets other class names.
    """
    scripted = torch.jit.script(model)
    buffer = io.BytesIO()
    torch.jit.save(scripted, buffer, _extra_files={TORCHSCRIPT_METADATA_FILE: canonical_json(metadata)})
    return _strip(buffer.getvalue())


def load_torchscript(data: bytes) -> tuple[torch.jit.ScriptModule, dict[str, Any]]:
    """Load a TorchScript archive onto the CPU, with its metadata.

    Raises:
        ValueError: if the bytes are damaged or carry no metadata of ours.
    """
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


def _strip(archive: bytes) -> bytes:
    """Drop what differs from folder to folder (source paths, a random id) and what differs from day to day (dates)."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as source, zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as target:
        for name in sorted(source.namelist()):
            if name.endswith((".debug_pkl", ".data/serialization_id")):
                continue
            entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            # Records start at multiples of 64 bytes, as torch writes them, so that the file can be mapped into memory.
            start = buffer.tell() + _ZIP_HEADER_SIZE + len(name.encode()) + _EXTRA_HEADER_SIZE
            padding = -start % _ALIGNMENT
            entry.extra = b"FB" + padding.to_bytes(2, "little") + b"Z" * padding
            target.writestr(entry, source.read(name))
    return buffer.getvalue()
