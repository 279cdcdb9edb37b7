"""Everything TorchScript: the export, the metadata, the loading.

The module is scripted, never traced: tracing would keep the example's devices and slice bounds. It is in eval mode and
not frozen: a frozen module has no parameters, so `.to(device)` would be silently without effect.
"""

import io
import json
from typing import Any

import torch

from export.archive import rewrite_archive
from export.contract import TORCHSCRIPT_METADATA_FILE, canonical_json

TORCHSCRIPT_FILE = "model.pt"
# libtorch reads only what its own or an older release wrote.
MINIMUM_LIBTORCH = torch.__version__.partition("+")[0]

# Source paths, and an id that is drawn anew each time.
_TRACES = (".debug_pkl", ".data/serialization_id")


def export_torchscript(model: torch.nn.Module, metadata: dict[str, Any]) -> bytes:
    """Script a model in eval mode into the bytes of a TorchScript archive that carries the metadata.

    The bytes are a function of the model and the metadata, if nothing was scripted in this process before: a second
    script in one process gets other class names.
    """
    scripted = torch.jit.script(model)
    buffer = io.BytesIO()
    torch.jit.save(scripted, buffer, _extra_files={TORCHSCRIPT_METADATA_FILE: canonical_json(metadata)})
    return rewrite_archive(buffer.getvalue(), drop=_TRACES)


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
