"""Nothing in the files tells where, by whom or from what they were made.

Labels and the tokenizer's pieces come from the user's data and may say anything; all else is looked through.
"""

import contextlib
import getpass
import json
import re
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError
from sentencepiece import sentencepiece_model_pb2

from export.contract import (
    ONNX_METADATA_KEY,
    PT2_METADATA_FILE,
    TOKENIZER_CONFIG_FILE,
    TOKENIZER_FILE,
    TOKENIZER_JSON_FILE,
    TORCHSCRIPT_METADATA_FILE,
)
from export.model import CONFIG_FILE, WEIGHTS_FILE
from export.onnx_export import ONNX_FILE, read_onnx
from export.proof.checks.files import Files, messages, read_archive
from export.proof.checks.fresh_export import fresh_export
from export.proof.runtimes import Read
from export.pt2 import PT2_FILE
from export.torchscript import TORCHSCRIPT_FILE

_PATH = re.compile(rb"(?<![\w.)\]/:-])/(?:[\w.+-]+/)+[\w.+-]*|[A-Za-z]:\\\\?[\w.+-]+\\|(?:site|dist)-packages")
_STACK_TRACE = b"stack_trace"
# A weight's numbers may spell anything.
_TENSOR_RECORD = re.compile(r"data/(\d+|weights/weight_\d+|constants/tensor_\d+)")
_METADATA = {f"extra/{name}" for name in (TORCHSCRIPT_METADATA_FILE, PT2_METADATA_FILE)}
# Shorter names are parts of ordinary words ("root", "dev").
_SHORTEST_NAME = 5
# Shorter texts may stand in a file by chance ("MIT", "stop").
_SHORTEST_TEXT = 12


def check_no_traces(files: Files) -> list[str]:
    """Look for source paths and the exporter's notes."""
    problems = []
    for entry in files.onnx.metadata_props:
        if entry.key != ONNX_METADATA_KEY:
            problems.append(f"{ONNX_FILE} carries a metadata entry {entry.key}")
    for kind in (onnx.GraphProto, onnx.NodeProto, onnx.ValueInfoProto, onnx.TensorProto, onnx.FunctionProto):
        noted = [part for part in messages(files.onnx, kind) if part.metadata_props or part.doc_string]
        if noted:
            problems.append(f"{ONNX_FILE} carries the exporter's notes on {len(noted)} parts of kind {kind.__name__}")
    problems += [
        f"{TORCHSCRIPT_FILE} carries the source positions {name}"
        for name, _ in files.archive
        if name.endswith(".debug_pkl")
    ]
    for where, data in _readable(files):
        if not where.endswith(".debug_pkl"):
            problems += [f"{where} holds {trace!r}" for trace in _find_paths(data)]
    return problems


def _find_paths(data: bytes) -> list[str]:
    traces = sorted({match.group().decode("ascii", "replace") for match in _PATH.finditer(data)})
    return [*traces, *([_STACK_TRACE.decode()] if _STACK_TRACE in data else [])]


def check_no_names(files: Files) -> list[str]:
    """Look for the names of this user, this home folder and this machine."""
    fresh = fresh_export(files)
    # A user may be called as a word is that stands in every export.
    archives = ((TORCHSCRIPT_FILE, fresh.torchscript), (PT2_FILE, fresh.pt2))
    records = [record for file, data in archives for record in read_archive(file, data)]
    usual = _bare_onnx(read_onnx(fresh.onnx)) + b"".join(
        data for name, data in records if not _TENSOR_RECORD.fullmatch(name)
    )
    problems = []
    for name in sorted(own_names()):
        word = re.compile(rb"(?<![A-Za-z0-9])" + re.escape(name.encode()) + rb"(?![A-Za-z0-9])")
        if not word.search(usual):
            problems += [f"{where} holds the name {name!r}" for where, data in _readable(files) if word.search(data)]
    return problems


def own_names() -> set[str]:
    """Return the names of the user, the home folder and the machine that are long enough to look for."""
    names = {Path.home().name, socket.gethostname()}
    # A user without a name has none to be found.
    with contextlib.suppress(OSError, KeyError):
        names.add(getpass.getuser())
    return {name for name in names if len(name) >= _SHORTEST_NAME}


def find_texts(read: Read, texts: Sequence[str]) -> list[str]:
    """Look for texts, such as the goldens', in the files that must hold none.

    Raises:
        ValueError: if a file can't be read.
    """
    long = [text for text in texts if len(text) >= _SHORTEST_TEXT]
    forms = [(text, {text.encode(), json.dumps(text)[1:-1].encode()}) for text in long]
    return [
        f"{where} holds the text {text[:40]!r}"
        for where, data in _readable(Files(read))
        for text, spelled in forms
        if any(form in data for form in spelled)
    ]


def _readable(files: Files) -> Iterator[tuple[str, bytes]]:
    """Yield what is no number in the files, with a name for each part."""
    yield ONNX_FILE, _bare_onnx(files.onnx)
    for name, data in files.archive:
        if not _TENSOR_RECORD.fullmatch(name):
            yield f"{TORCHSCRIPT_FILE}, {name}", name.encode() + b"\n" + _without_labels(name, data)
    for name, data in files.pt2_archive:
        if not _TENSOR_RECORD.fullmatch(name):
            yield f"{PT2_FILE}, {name}", name.encode() + b"\n" + _without_labels(name, data)
    yield CONFIG_FILE, _json_without(files.read(CONFIG_FILE), ("id2label",), ("label2id",))
    yield TOKENIZER_FILE, _tokenizer_settings(files.read(TOKENIZER_FILE))
    yield TOKENIZER_CONFIG_FILE, _json_without(files.read(TOKENIZER_CONFIG_FILE))
    pieces = ("model", "vocab"), ("model", "merges")
    yield TOKENIZER_JSON_FILE, _json_without(files.read(TOKENIZER_JSON_FILE), *pieces)
    data = files.read(WEIGHTS_FILE)
    yield WEIGHTS_FILE, data[8 : 8 + int.from_bytes(data[:8], "little")]


def _without_labels(name: str, data: bytes) -> bytes:
    return _json_without(data, ("labels",)) if name in _METADATA else data


def _bare_onnx(model: onnx.ModelProto) -> bytes:
    """Serialise a model without its numbers and its labels."""
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    for tensor in messages(bare, onnx.TensorProto):
        tensor.ClearField("raw_data")
    for entry in bare.metadata_props:
        if entry.key == ONNX_METADATA_KEY:
            entry.value = _json_without(entry.value.encode(), ("labels",)).decode()
    data: bytes = bare.SerializeToString()
    return data


def _json_without(data: bytes, *paths: tuple[str, ...]) -> bytes:
    """Return a JSON document without some of its parts."""
    document = json.loads(data)
    for path in paths:
        part: Any = document
        for key in path[:-1]:
            part = part.get(key, {}) if isinstance(part, dict) else {}
        if isinstance(part, dict):
            part.pop(path[-1], None)
    return json.dumps(document, ensure_ascii=False).encode()


def _tokenizer_settings(data: bytes) -> bytes:
    """Return a SentencePiece model without its pieces: settings, which may name files, and samples."""
    # The module makes its classes when it is imported.
    model: Any = vars(sentencepiece_model_pb2)["ModelProto"]()
    try:
        model.ParseFromString(data)
    except DecodeError:
        return data
    model.ClearField("pieces")
    settings: bytes = model.SerializeToString()
    return settings
