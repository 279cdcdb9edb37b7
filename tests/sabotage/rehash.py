"""The attacker's recomputation: every hash in an artifact, and the page of its proof, is made to fit again."""

import json
import zipfile
from contextlib import suppress
from typing import Any

import onnx
from google.protobuf.message import DecodeError

from export.artifact.layout import (
    EVALUATION_FILE,
    MANIFEST_FILE,
    SUMS_FILE,
    TOLD_FILES,
    VERIFICATION_FILE,
    VERIFICATION_PAGE,
    VERIFIED_FILES,
    sums_text,
)
from export.contract import ONNX_METADATA_KEY, TOKENIZER_FILE
from export.files import dump_json, sha256_bytes
from export.model import CONFIG_FILE, WEIGHTS_FILE, config_hash
from export.onnx_export import ONNX_FILE
from export.precision_files import OPTIONAL_FILES
from export.proof.report import page
from tests.sabotage.artifact import Contents
from tests.sabotage.tools import METADATA_RECORDS, SHORT, read_records, set_metadata

# What a document raises that a fault has left in another shape.
MISSHAPEN = (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError)


def rehash(contents: Contents) -> None:
    """Make every hash fit, from the metadata inside the model files to SHA256SUMS."""
    own = _own_hashes(contents)
    for name in SHORT:
        metadata = _read_onnx_metadata(contents) if name == ONNX_FILE else _read_archive_metadata(contents, name)
        if metadata is not None and _fit(metadata, own):
            set_metadata(contents, name, metadata)
    hashes = {name: sha256_bytes(contents[name]) for name in contents}
    _edit(
        contents,
        VERIFICATION_FILE,
        lambda record: _fit_files(record["inputs"]["files"], hashes, (*VERIFIED_FILES, *OPTIONAL_FILES)),
    )
    # The page shows nothing that the proof does not; a proof in another shape has none.
    with suppress(*MISSHAPEN):
        contents[VERIFICATION_PAGE] = page(json.loads(contents[VERIFICATION_FILE])).encode()
    _edit(contents, EVALUATION_FILE, lambda record: _fit_files(record["pictures"], hashes, TOLD_FILES))

    def bind(manifest: dict[str, Any]) -> None:
        _fit(manifest["metadata"], own)
        for name, entry in manifest["files"].items():
            if name in contents:
                entry.update(sha256=sha256_bytes(contents[name]), bytes=len(contents[name]))

    _edit(contents, MANIFEST_FILE, bind)
    seal(contents)


def seal(contents: Contents) -> None:
    """Write SHA256SUMS anew, from the bytes of the manifest and what it says of the others."""
    try:
        files = json.loads(contents[MANIFEST_FILE])["files"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return
    hashes = {name: entry["sha256"] for name, entry in files.items()}
    hashes[MANIFEST_FILE] = sha256_bytes(contents[MANIFEST_FILE])
    contents[SUMS_FILE] = sums_text(hashes).encode()


def _own_hashes(contents: Contents) -> dict[str, str]:
    hashes = {name: sha256_bytes(contents[name]) for name in (TOKENIZER_FILE, WEIGHTS_FILE) if name in contents}
    # A fault may have left no configuration that can be read.
    with suppress(KeyError, ValueError):
        hashes[CONFIG_FILE] = config_hash(json.loads(contents[CONFIG_FILE]))
    return hashes


def _fit(metadata: dict[str, Any], own: dict[str, str]) -> bool:
    """Make the hashes in a metadata document fit; whether any did not."""
    places = (
        (metadata, "config_sha256", own.get(CONFIG_FILE)),
        (metadata, "weights_sha256", own.get(WEIGHTS_FILE)),
        (metadata.get("tokenizer", {}), "sha256", own.get(TOKENIZER_FILE)),
    )
    changed = False
    for place, key, sha256 in places:
        if key in place and sha256 is not None and place[key] != sha256:
            place[key], changed = sha256, True
    return changed


def _fit_files(files: dict[str, str], hashes: dict[str, str], names: tuple[str, ...]) -> None:
    files.update({name: hashes[name] for name in names if name in files and name in hashes})


def _edit(contents: Contents, name: str, edit: Any) -> None:
    """Change a JSON document, where the fault has left one to change."""
    if name not in contents:
        return
    try:
        document = json.loads(contents[name])
        edit(document)
    except MISSHAPEN:
        return
    text = dump_json(document).encode()
    if json.loads(contents[name]) != document:
        contents[name] = text


def _read_onnx_metadata(contents: Contents) -> dict[str, Any] | None:
    try:
        model = onnx.load_from_string(contents[ONNX_FILE])
        (text,) = [entry.value for entry in model.metadata_props if entry.key == ONNX_METADATA_KEY]
    except (KeyError, ValueError, DecodeError):
        return None
    return dict(json.loads(text))


def _read_archive_metadata(contents: Contents, file: str) -> dict[str, Any] | None:
    try:
        return dict(json.loads(dict(read_records(contents, file))[METADATA_RECORDS[file]]))
    except (KeyError, ValueError, zipfile.BadZipFile):
        return None
