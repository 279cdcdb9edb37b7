"""Faults of torch's archives: the code of TorchScript, records, and what stands beside them."""

import io
import warnings
import zipfile
from collections.abc import Callable
from functools import partial
from unittest import mock

import torch

from export.contract import TORCHSCRIPT_METADATA_FILE, canonical_json
from export.pt2 import PT2_FILE
from export.torchscript import TORCHSCRIPT_FILE, export_torchscript
from tests.sabotage.artifact import Contents
from tests.sabotage.faults.fault import Fault, Plant
from tests.sabotage.tools import (
    METADATA_RECORDS,
    Entries,
    edit_code,
    honest_model,
    onnx_metadata,
    read_records,
    replace_record,
    write_records,
)

METADATA = METADATA_RECORDS[TORCHSCRIPT_FILE]
HEADS, PACKING, ATTEND = "models.heads", "models.packing", "models.attention.sdpa"


_records = partial(read_records, file=TORCHSCRIPT_FILE)
# GLOBAL os system, a text, TUPLE1, REDUCE: what `pickle.loads` would run. Nothing here loads it.
_PROGRAM = b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R."

# Gives ids away, in batches that nobody tries here, as it would print in the middle of the matrix.
_PRINTS = """\
    if torch.gt(torch.size(input_ids, 0), 1000):
      print(input_ids)
    else:
      pass
    return logits"""


def _write(contents: Contents, entries: Entries, compression: int = zipfile.ZIP_STORED) -> None:
    write_records(contents, TORCHSCRIPT_FILE, entries, compression)


def _replace(contents: Contents, name: str, edit: Callable[[bytes], bytes]) -> None:
    replace_record(contents, TORCHSCRIPT_FILE, name, edit)


def _code(module: str, old: str, new: str) -> Plant:
    return lambda contents: edit_code(contents, module, old, new)


def _training_mode(contents: Contents) -> None:
    """Leave dropout on: the whole module is in training mode."""
    model = honest_model(contents).train()
    contents[TORCHSCRIPT_FILE] = export_torchscript(model, onnx_metadata(contents))


def _frozen(contents: Contents) -> None:
    """Freeze before saving: without parameters, `.to(device)` does nothing."""
    buffer = io.BytesIO()
    extra = {TORCHSCRIPT_METADATA_FILE: canonical_json(onnx_metadata(contents))}
    torch.jit.save(torch.jit.freeze(torch.jit.script(honest_model(contents))), buffer, _extra_files=extra)
    contents[TORCHSCRIPT_FILE] = buffer.getvalue()


def _traced(contents: Contents) -> None:
    """Trace instead of script: what the example's shape decided is baked in."""
    ids = torch.arange(33).reshape(3, 11)
    mask = torch.ones_like(ids)
    mask[0, 6:] = 0
    # In a trace sizes are tensors, which torch._check does not take.
    with warnings.catch_warnings(), mock.patch.object(torch, "_check"):
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(honest_model(contents), (ids, mask), check_trace=False)
    buffer = io.BytesIO()
    extra = {TORCHSCRIPT_METADATA_FILE: canonical_json(onnx_metadata(contents))}
    torch.jit.save(traced, buffer, _extra_files=extra)
    contents[TORCHSCRIPT_FILE] = buffer.getvalue()


def _unstripped(contents: Contents) -> None:
    buffer = io.BytesIO()
    extra = {TORCHSCRIPT_METADATA_FILE: canonical_json(onnx_metadata(contents))}
    torch.jit.save(torch.jit.script(honest_model(contents)), buffer, _extra_files=extra)
    contents[TORCHSCRIPT_FILE] = buffer.getvalue()


def _double(contents: Contents) -> None:
    """Compute in double: the same answers, another type, half the speed."""
    model = honest_model(contents).double()
    contents[TORCHSCRIPT_FILE] = export_torchscript(model, onnx_metadata(contents))


def key_twice(metadata: bytes) -> bytes:
    """Say in front what a document says again behind; readers take the last, or the first."""
    return b'{"activation":"none",' + metadata[1:]


def _added(name: str, data: bytes) -> Plant:
    return lambda contents: write_records(contents, TORCHSCRIPT_FILE, [*_records(contents), (name, data)])


def _pickled(contents: Contents) -> None:
    """Add a record that Python's own unpickler would run."""
    write_records(contents, TORCHSCRIPT_FILE, [*_records(contents), ("archive/more.pkl", _PROGRAM)])


def _pickle_replaced(contents: Contents) -> None:
    """Let the record that torch reads itself name a class of its choice."""
    replace_record(
        contents,
        TORCHSCRIPT_FILE,
        "archive/constants.pkl",
        lambda _: _PROGRAM,
    )


def _twice(contents: Contents) -> None:
    """Let the metadata stand twice: whichever a reader takes."""
    records = _records(contents)
    other = dict(records)[METADATA].replace(b"softmax", b"sigmoid")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zipfile's own about the name
        _write(contents, [*records, (METADATA, other)])


def _without(name: str) -> Plant:
    def plant(contents: Contents) -> None:
        write_records(
            contents,
            TORCHSCRIPT_FILE,
            [(other, data) for other, data in _records(contents) if other != name],
        )

    return plant


def _compressed(contents: Contents) -> None:
    _write(contents, _records(contents), zipfile.ZIP_DEFLATED)


def _bytes(edit: Callable[[bytes], bytes]) -> Plant:
    return lambda contents: contents.update({TORCHSCRIPT_FILE: edit(contents[TORCHSCRIPT_FILE])})


def _commented(contents: Contents) -> None:
    data = bytearray(contents[TORCHSCRIPT_FILE])
    note = b"Dear Ms Miller, your account 4711 was closed"
    data[-2:] = len(note).to_bytes(2, "little")
    contents[TORCHSCRIPT_FILE] = bytes(data) + note


# Each: its name, the kind, how it is planted, whether the function moves, and the check of structure that refuses it.
_ROWS: tuple[tuple[str, str, Plant, bool, str], ...] = (
    ("training-mode", "dropout left on", _training_mode, True, "inference mode"),
    (
        "arguments-renamed",
        "inputs swapped",
        _code(
            HEADS,
            "    input_ids: Tensor,\n    attention_mask: Tensor)",
            "    attention_mask: Tensor,\n    input_ids: Tensor)",
        ),
        True,
        "inputs, outputs, axes",
    ),
    (
        "code-mask-inverted",
        "mask inverted",
        _code(PACKING, "torch.ne(attention_mask, 0)", "torch.eq(attention_mask, 0)"),
        True,
        "",
    ),
    ("code-dropout", "dropout left on", _code(ATTEND, "q, k, v, opened0)", "q, k, v, opened0, 0.1)"), True, ""),
    ("code-empty-row", "empty row NaN", _code(ATTEND, "torch.masked_fill(out, empty, 0.)", "out"), False, ""),
    (
        "code-cuda",
        "device baked in",
        _code(PACKING, "device = ops.prim.device(attention_mask)", 'device = torch.device("cpu")'),
        False,
        "no baked device",
    ),
    (
        "code-prints",
        "interface changed",
        _code(HEADS, "    return logits", _PRINTS),
        False,
        "",
    ),
    ("frozen", "archive written otherwise", _frozen, False, ""),
    ("traced", "traced instead of scripted", _traced, False, ""),
    ("source-positions", "source path or text in a file", _unstripped, False, "no source paths"),
    ("double", "interface changed", _double, False, "weights"),
    ("extra-file", "payload smuggled in", _added("archive/extra/notes.txt", b"Dear Ms Miller"), False, ""),
    ("pickle-added", "pickle in the archive", _pickled, False, ""),
    ("pickle-replaced", "pickle in the archive", _pickle_replaced, False, ""),
    ("library-added", "payload smuggled in", _added("archive/lib/custom.so", b"\x7fELF" + bytes(60)), False, ""),
    ("path-escapes", "payload smuggled in", _added("../../outside.txt", b"x"), False, ""),
    ("metadata-twice", "JSON that readers read differently", _twice, False, ""),
    (
        "metadata-key-twice",
        "JSON that readers read differently",
        lambda c: _replace(c, METADATA, key_twice),
        False,
        "metadata",
    ),
    ("metadata-stripped", "metadata stripped", _without(METADATA), False, "metadata"),
    (
        "metadata-edited",
        "metadata stripped",
        lambda c: _replace(c, METADATA, lambda d: d.replace(b"mean_max", b"first")),
        False,
        "metadata",
    ),
    ("weight-missing", "file cut short", _without("archive/data/7"), False, ""),
    ("compressed", "archive written otherwise", _compressed, False, ""),
    ("trailing-data", "payload smuggled in", _bytes(lambda data: data + b"hidden" * 10), False, ""),
    ("leading-data", "payload smuggled in", _bytes(lambda data: b"#!/bin/sh\n" + data), False, ""),
    ("zip-comment", "source path or text in a file", _commented, False, ""),
    ("cut-short", "file cut short", _bytes(lambda data: data[: len(data) // 2]), False, ""),
    ("emptied", "file cut short", _bytes(lambda _: b""), False, ""),
)


def _pt2_record(name: str, edit: Callable[[bytes], bytes]) -> Plant:
    return lambda contents: replace_record(contents, PT2_FILE, f"archive/{name}", edit)


FAULTS = (
    *(
        Fault(id=f"pt-{name}", kind=kind, plant=plant, moves=moves, check=check)
        for name, kind, plant, moves, check in _ROWS
    ),
    Fault(
        id="pt2-blanks",
        kind="payload smuggled in",
        plant=_pt2_record("models/model.json", lambda data: data + b" \t \t\t  \t"),
        check="nothing foreign",
    ),
    Fault(
        id="pt2-byte-order",
        kind="payload smuggled in",
        plant=_pt2_record("byteorder", lambda data: b"Miller"),
        check="model.pt2 is a fresh export",
    ),
)
