"""The metadata that the model files carry, against what the other files say."""

import json
from collections.abc import Iterator

from export.contract import PT2_METADATA_FILE, TOKENIZER_FILE, TORCHSCRIPT_METADATA_FILE, canonical_json
from export.files import is_same, sha256_bytes
from export.model import CONFIG_FILE, WEIGHTS_FILE, model_labels, model_metadata
from export.onnx_export import ONNX_FILE
from export.proof.checks.files import Files
from export.pt2 import PT2_FILE
from export.torchscript import TORCHSCRIPT_FILE


def check_metadata(files: Files) -> list[str]:
    config = files.config
    # The rest follows from the files; these two tell of the exporter and can only be repeated.
    told = files.onnx_metadata
    wanted = model_metadata(
        config,
        profile=told["profile"],
        tokenizer_sha256=sha256_bytes(files.read(TOKENIZER_FILE)),
        weights_sha256=sha256_bytes(files.read(WEIGHTS_FILE)),
        versions=told["versions"],
        minimum_runtime=told["minimum_runtime"],
    )
    problems = [
        *_differences(ONNX_FILE, told, wanted),
        *_differences(TORCHSCRIPT_FILE, files.torchscript_metadata, wanted),
        *_differences(PT2_FILE, files.pt2_metadata, wanted),
    ]
    if not problems:
        # Written otherwise, with a key twice, say, it may be read otherwise.
        letters = canonical_json(wanted)
        problems = [
            f"{name}: metadata is not written as Ferry writes it"
            for name, text in (
                (ONNX_FILE, files.onnx_metadata_text),
                (TORCHSCRIPT_FILE, _record(files.archive, TORCHSCRIPT_METADATA_FILE)),
                (PT2_FILE, _record(files.pt2_archive, PT2_METADATA_FILE)),
            )
            if text != letters
        ]
    inverse = {label: index for index, label in enumerate(model_labels(config))}
    if not is_same(config["label2id"], inverse):
        problems.append(f"{CONFIG_FILE}: label2id is not the inverse of id2label")
    return problems


def _record(records: list[tuple[str, bytes]], name: str) -> str:
    """Return the text of an archive's extra file."""
    texts = [data for record, data in records if record == f"extra/{name}"]
    return texts[0].decode("utf-8") if len(texts) == 1 else ""


def _differences(where: str, got: object, wanted: object, path: str = "metadata") -> Iterator[str]:
    if isinstance(got, dict) and isinstance(wanted, dict):
        for key in sorted(got.keys() | wanted.keys()):
            if key not in got or key not in wanted:
                yield f"{where}: {path}.{key} is {'missing' if key not in got else 'unknown'}"
            else:
                yield from _differences(where, got[key], wanted[key], f"{path}.{key}")
    elif type(got) is not type(wanted) or got != wanted:
        yield f"{where}: {path} is {_shorten(got)}; the files say {_shorten(wanted)}"


def _shorten(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
