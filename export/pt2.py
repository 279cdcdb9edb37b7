"""Everything .pt2, the format that torch.export writes and PyTorch names after TorchScript: export, metadata, loading.

The file holds a graph of ATen operators and the weights as raw bytes. It enforces the limits by itself: another
batch in the mask than in the ids, or a sequence that is too long, is an error. AOTInductor compiles it.

The format is young: a release of torch reads what it or an older one wrote, and no more is promised. The graph names
the CPU wherever it creates a tensor, so `.to(device)` is not enough; torch.export.passes.move_to_device_pass is.
"""

import io
import json
import zipfile
from typing import Any

import torch
from torch._export.verifier import SpecViolationError
from torch.export import ExportedProgram
from torch.export.pt2_archive._package import load_pt2 as load_archive

from export.archive import rewrite_archive
from export.contract import PT2_METADATA_FILE, canonical_json
from export.pt2_guard import METADATA_RECORD, SAMPLE_INPUTS, refuse_code

PT2_FILE = "model.pt2"
MINIMUM_TORCH = torch.__version__.partition("+")[0]

# What torch's loader raises on a graph that does not fit together.
_LOAD_ERRORS = (
    *(RuntimeError, ValueError, TypeError, LookupError, AttributeError, AssertionError),
    SpecViolationError,
)


def export_pt2(program: ExportedProgram, metadata: dict[str, Any]) -> bytes:
    """Write a captured model as the bytes of a .pt2 archive that carries the metadata.

    The bytes are a function of the model and the metadata.

    Raises:
        ValueError: if the graph holds what `load_pt2` refuses.
    """
    buffer = io.BytesIO()
    torch.export.save(program, buffer, extra_files={PT2_METADATA_FILE: canonical_json(metadata)})
    # Sample inputs would be pickled; an empty record stands for none. The id is drawn anew each time.
    data = rewrite_archive(buffer.getvalue(), drop=(".data/serialization_id",), empty=(SAMPLE_INPUTS,))
    refuse_code(data)
    return data


def read_pt2(data: bytes) -> tuple[ExportedProgram, dict[str, Any]]:
    """Read the program of a .pt2 archive, with its metadata.

    Nothing is unpickled, and no code but the graph's can run: what would need either is refused. To have it compiled,
    give it inputs first: `program.example_inputs = ((input_ids, attention_mask), {})`; the file holds none.

    Raises:
        ValueError: if the bytes are damaged or not of Ferry's making.
    """
    try:
        refuse_code(data)
        contents = load_archive(io.BytesIO(data))
        metadata = json.loads(contents.extra_files[PT2_METADATA_FILE])
        return contents.exported_programs["model"], metadata
    except _LOAD_ERRORS as error:
        raise _damaged(error) from None


def module_of(program: ExportedProgram) -> torch.nn.Module:
    """Turn the program of a .pt2 archive into a module on the CPU that can be called.

    Raises:
        ValueError: if its graph does not fit together.
    """
    try:
        module: torch.nn.Module = program.module()
    except _LOAD_ERRORS as error:
        raise _damaged(error) from None
    return module


def load_pt2(data: bytes) -> tuple[torch.nn.Module, dict[str, Any]]:
    """Load a .pt2 archive onto the CPU as a module that can be called, with its metadata.

    Raises:
        ValueError: as `read_pt2`.
    """
    program, metadata = read_pt2(data)
    return module_of(program), metadata


def read_pt2_metadata(data: bytes) -> dict[str, Any]:
    """Read the metadata of a .pt2 archive alone, which is much quicker than reading its program.

    Raises:
        ValueError: as `read_pt2`.
    """
    try:
        refuse_code(data)
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            metadata: dict[str, Any] = json.loads(archive.read(METADATA_RECORD))
    except _LOAD_ERRORS as error:
        raise _damaged(error) from None
    return metadata


def _damaged(error: Exception) -> ValueError:
    first_line = (str(error).strip() or type(error).__name__).partition("\n")[0]
    return ValueError(f"{PT2_FILE} is damaged or not of Ferry's making: {first_line}")
