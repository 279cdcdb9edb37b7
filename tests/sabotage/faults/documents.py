"""Faults of the documents: manifest, proof, evaluation, sums; and genuine files of another artifact among these."""

from collections.abc import Callable
from typing import Any

from export.artifact.layout import (
    CARD_FILE,
    CONFUSION_FILE,
    EVALUATION_FILE,
    GOLDENS_FILE,
    MANIFEST_FILE,
    RELIABILITY_FILE,
    SUMS_FILE,
    VERIFICATION_FILE,
    VERIFICATION_PAGE,
)
from export.contract import TOKENIZER_CONFIG_FILE, TOKENIZER_FILE, TOKENIZER_JSON_FILE
from export.files import sha256_bytes
from export.model import CONFIG_FILE, WEIGHTS_FILE
from export.onnx_export import ONNX_FILE
from export.pt2 import PT2_FILE
from export.torchscript import TORCHSCRIPT_FILE
from tests.sabotage.artifact import Contents
from tests.sabotage.faults.fault import SIGNATURE, Fault, Plant
from tests.sabotage.rehash import seal
from tests.sabotage.tools import edit_json

Edit = Callable[[Any], object]
MODEL_FILES = (ONNX_FILE, TORCHSCRIPT_FILE, PT2_FILE)
TOKENIZER_FILES = (TOKENIZER_FILE, TOKENIZER_JSON_FILE, TOKENIZER_CONFIG_FILE)


def _json(name: str, edit: Edit) -> Plant:
    return lambda contents: edit_json(contents, name, edit)


def _manifest(edit: Edit) -> Plant:
    return _json(MANIFEST_FILE, edit)


def _proof(edit: Edit) -> Plant:
    return _json(VERIFICATION_FILE, edit)


def _text(name: str, edit: Callable[[bytes], bytes]) -> Plant:
    return lambda contents: contents.update({name: edit(contents[name])})


def _inflated(contents: Contents) -> None:
    """Raise the accuracy in every place that tells it."""

    def raise_metrics(document: Any) -> None:
        document["metrics"]["test"]["accuracy"] = 0.99

    def raise_proof(document: Any) -> None:
        for backend in document["test_split"]["backends"]:
            backend["accuracy"] = 0.99

    edit_json(contents, MANIFEST_FILE, raise_metrics)
    edit_json(contents, EVALUATION_FILE, raise_metrics)
    edit_json(contents, VERIFICATION_FILE, raise_proof)


def _claimed_cuda(contents: Contents) -> None:
    """Say that CUDA was proven, in the manifest and in the proof."""
    edit_json(contents, VERIFICATION_FILE, lambda record: record["providers"].update(cuda="verified"))
    edit_json(contents, MANIFEST_FILE, lambda manifest: manifest["verification"]["providers"].update(cuda="verified"))


def _edited_page(contents: Contents) -> None:
    """Let the page show what the proof does not say, under hashes that fit."""
    forged = contents[VERIFICATION_PAGE].replace(b"not verified", b"verified")
    assert forged != contents[VERIFICATION_PAGE]
    contents[VERIFICATION_PAGE] = forged
    entry = {"sha256": sha256_bytes(forged), "bytes": len(forged)}
    edit_json(contents, MANIFEST_FILE, lambda manifest: manifest["files"].update({VERIFICATION_PAGE: entry}))
    seal(contents)


def _claimed_with_table(contents: Contents) -> None:
    """Say so with a table of nodes that never ran there."""
    _claimed_cuda(contents)

    def add(record: Any) -> None:
        record["placement"].append({**record["placement"][0], "provider": "CUDAExecutionProvider"})

    edit_json(contents, VERIFICATION_FILE, add)


def _wider_limit(record: Any) -> None:
    """Widen the tolerance from which that of the goldens follows."""
    for part in ("parity", "test_split"):
        record[part]["tolerance"]["limit"] *= 1000


def _silenced(record: Any) -> None:
    """Turn a proof that failed into one that passed: the verdict and the list, and not what is counted elsewhere."""
    record["parity"]["backends"][1]["failures"] = 7


def _backends_dropped(record: Any) -> None:
    """Leave every backend but eager out of the proof."""
    for part in ("parity", "test_split"):
        record[part]["backends"] = record[part]["backends"][:1]
    record["invariances"] = []
    record["checks"] = []


def _duplicate_key(contents: Contents) -> None:
    """Let a key stand twice: of two readers one takes the first, the other the last."""
    text = contents[MANIFEST_FILE].decode()
    contents[MANIFEST_FILE] = text.replace('"threshold": 0.3', '"threshold": 0.9, "threshold": 0.3').encode()


def _made_up_for(record: Any) -> None:
    """Let one backend's failures be made up for by another's."""
    record["parity"]["backends"][1]["failures"] = 7
    record["parity"]["backends"][2]["failures"] = -7


def _smallest_failure(record: Any) -> None:
    record["counterexamples"].append({"backend": "torchscript"})


def _nested_labels(data: bytes) -> bytes:
    """Put two equal lists of lists among the labels, which whoever looks for equal ones compares to the ground."""
    lists = b"[" * 300 + b"]" * 300
    return data.replace(b'"labels": [', b'"labels": [' + lists + b"," + lists + b",", 1)


def _exchange(name: str, old: bytes, new: bytes) -> Plant:
    def edit(data: bytes) -> bytes:
        assert old in data, f"{name} does not hold {old!r}"
        return data.replace(old, new, 1)

    return _text(name, edit)


def _unused_space(contents: Contents) -> None:
    contents[SUMS_FILE] = contents[SUMS_FILE].replace(b"\n", b"\r\n")


def _one_sum(contents: Contents) -> None:
    contents[SUMS_FILE] = b"".join(contents[SUMS_FILE].splitlines(keepends=True)[1:])


def _more_sums(contents: Contents) -> None:
    contents[SUMS_FILE] += b"0" * 64 + b"  ../../outside.txt\n"


def _changed_byte(name: str) -> Plant:
    def plant(contents: Contents) -> None:
        data = bytearray(contents[name])
        data[len(data) // 2] ^= 1
        contents[name] = bytes(data)

    return plant


def _fault(name: str, kind: str, check: str, **parts: Any) -> Fault:
    return Fault(id=name, kind=kind, check=check, **parts)


_EDITED = (
    _fault("manifest-name", "manifest edited", "manifest", plant=_manifest(lambda m: m.update(name="../up"))),
    _fault("manifest-key", "manifest edited", "manifest", plant=_manifest(lambda m: m.update(note="tested"))),
    _fault("manifest-format", "manifest edited", "manifest", plant=_manifest(lambda m: m.update(format=1))),
    _fault(
        "manifest-verdict",
        "manifest edited",
        "manifest",
        plant=_manifest(lambda m: m["verification"].update(verdict="failed")),
    ),
    _fault(
        "manifest-metrics",
        "figures inflated",
        "verification",
        plant=_manifest(lambda m: m["metrics"]["test"].update(accuracy=0.99)),
    ),
    _fault(
        "manifest-file-left-out", "manifest edited", "manifest", plant=_manifest(lambda m: m["files"].pop("model.pt"))
    ),
    _fault(
        "manifest-size-as-float",
        "JSON that readers read differently",
        "manifest",
        after=_manifest(lambda m: m["files"]["model.pt"].update(bytes=1e5)),
    ),
    _fault(
        "manifest-size", "manifest edited", "hashes", after=_manifest(lambda m: m["files"]["model.pt"].update(bytes=1))
    ),
    _fault(
        "manifest-hash",
        "manifest edited",
        "hashes",
        after=_manifest(lambda m: m["files"]["model.pt"].update(sha256="0" * 64)),
    ),
    _fault(
        "manifest-nan",
        "JSON that readers read differently",
        "manifest",
        after=_text(MANIFEST_FILE, lambda d: d.replace(b'"temperature": 0.8', b'"temperature": NaN')),
    ),
    _fault(
        "config-key-twice",
        "JSON that readers read differently",
        "JSON",
        plant=_text(CONFIG_FILE, lambda d: d.replace(b'"threshold": 0.3', b'"threshold": 0.9, "threshold": 0.3')),
    ),
    _fault("manifest-key-twice", "JSON that readers read differently", "manifest", after=_duplicate_key),
    _fault(
        "manifest-byte-order-mark",
        "JSON that readers read differently",
        "manifest",
        after=_text(MANIFEST_FILE, lambda d: b"\xef\xbb\xbf" + d),
    ),
    _fault(
        "manifest-deep",
        "JSON that readers read differently",
        "manifest",
        after=_text(MANIFEST_FILE, lambda _: b"[" * 200_000),
    ),
    *(
        _fault(f"manifest-{name}", "JSON that readers read differently", "manifest", after=plant)
        for name, plant in (
            ("infinite", _exchange(MANIFEST_FILE, b'"data": {', b'"data": {"x": 1e400,')),
            ("integer-of-400-digits", _exchange(MANIFEST_FILE, b'"data": {', b'"data": {"x": 1' + b"0" * 400 + b",")),
            ("half-a-surrogate-pair", _exchange(MANIFEST_FILE, b'"data": {', b'"data": {"x": "\\ud800",')),
            ("line-feed-after-version", _exchange(MANIFEST_FILE, b'"version": "1.0.0"', b'"version": "1.0.0\\n"')),
            ("nested-labels", _text(MANIFEST_FILE, _nested_labels)),
            ("rows-as-text", _manifest(lambda m: m["data"].update(rows="many"))),
        )
    ),
    *(
        _fault(f"{short}-{number}", "JSON that readers read differently", check, after=_exchange(name, old, new))
        for short, number, check, name, old, new in (
            ("manifest", "false-for-0", "goldens", MANIFEST_FILE, b'"padding": 0', b'"padding": false'),
            ("manifest", "1.0-for-1", "goldens", MANIFEST_FILE, b'"token": 1', b'"token": 1.0'),
        )
    ),
    *(
        _fault(f"tokenizer-{name}", "JSON that readers read differently", "tokenizer", plant=plant)
        for name, plant in (
            ("1-for-true", _exchange(TOKENIZER_JSON_FILE, b'"byte_fallback":true', b'"byte_fallback":1')),
            ("0.0-for-0", _exchange(TOKENIZER_JSON_FILE, b'"stride":0', b'"stride":0.0')),
            ("false-for-0", _exchange(TOKENIZER_JSON_FILE, b'"pad_id":0', b'"pad_id":false')),
            (
                "length-as-float",
                _exchange(TOKENIZER_CONFIG_FILE, b'_length": 12', b'_length": 12.0'),
            ),
        )
    ),
    _fault("proof-failures-made-up-for", "proof edited", "verification", plant=_proof(_made_up_for)),
    _fault("proof-counterexample", "proof edited", "verification", plant=_proof(_smallest_failure)),
    _fault("proof-verdict", "proof edited", "verification", plant=_proof(lambda r: r.update(verdict="failed"))),
    _fault(
        "proof-failures",
        "proof edited",
        "verification",
        plant=_proof(lambda r: r["failures"].append({"backend": "torchscript"})),
    ),
    _fault("proof-failures-counted", "proof edited", "verification", plant=_proof(_silenced)),
    _fault("proof-backends-dropped", "proof edited", "verification", plant=_proof(_backends_dropped)),
    _fault("proof-limit", "proof edited", "verification", plant=_proof(_wider_limit)),
    _fault(
        "proof-without-files",
        "proof edited",
        "verification",
        plant=_proof(lambda r: r["inputs"].update(files={})),
    ),
    _fault("proof-emptied", "proof edited", "verification", plant=_proof(lambda r: r.clear())),
    _fault("proof-page", "page of the proof edited", "verification", after=_edited_page),
    _fault("proof-claims-cuda", "CUDA asked for, CPU used", "verification", plant=_claimed_cuda),
    _fault(
        "figures-in-evaluation",
        "figures inflated",
        "verification",
        plant=_json(EVALUATION_FILE, lambda e: e["metrics"]["test"].update(ece=0.0)),
    ),
)
_SUMS = (
    _fault("sums-line-left-out", "one byte changed, hashes kept", "manifest", after=_one_sum, rehashed=False),
    _fault("sums-of-outside", "one byte changed, hashes kept", "manifest", after=_more_sums, rehashed=False),
    _fault("sums-line-ends", "one byte changed, hashes kept", "manifest", after=_unused_space, rehashed=False),
    *(
        _fault(f"byte-in-{name}", "one byte changed, hashes kept", "hashes", after=_changed_byte(name), rehashed=False)
        for name in (CONFIG_FILE, WEIGHTS_FILE, TOKENIZER_FILE, GOLDENS_FILE, EVALUATION_FILE, CARD_FILE)
    ),
)
# Genuine files of another artifact of the same shapes.
_EXCHANGED: tuple[Fault, ...] = (
    _fault("exchanged-onnx", "another run's model", "weights", genuine=(ONNX_FILE,), moves=True),
    _fault("exchanged-pt", "another run's model", "weights", genuine=(TORCHSCRIPT_FILE,), moves=True),
    _fault("exchanged-pt2", "another run's model", "weights", genuine=(PT2_FILE,), moves=True),
    _fault("exchanged-weights", "another run's weights", "weights", genuine=(WEIGHTS_FILE,)),
    _fault("exchanged-goldens", "another run's report", "", genuine=(GOLDENS_FILE,)),
    _fault("exchanged-proof", "another run's report", "", genuine=(VERIFICATION_FILE,)),
    _fault("exchanged-evaluation", "another run's report", "verification", genuine=(EVALUATION_FILE,)),
    _fault("exchanged-tokenizer", "another tokenizer of the same size", "", genuine=TOKENIZER_FILES, moves=True),
    _fault("exchanged-config", "another run's model", "metadata", genuine=(CONFIG_FILE,)),
    _fault(
        "exchanged-models",
        "another run's model",
        "weights",
        genuine=MODEL_FILES,
        moves=True,
    ),
    _fault(
        "exchanged-function",
        "another run's model",
        "",
        genuine=(*MODEL_FILES, WEIGHTS_FILE),
        moves=True,
    ),
    _fault(
        "exchanged-function-and-goldens",
        "another run's report",
        "",
        genuine=(*MODEL_FILES, WEIGHTS_FILE, GOLDENS_FILE),
        moves=True,
    ),
)
# Words and figures that follow from nothing in the artifact: the signature alone binds them.
_SIGNED = tuple(
    _fault(f"signed-{name}", kind, "signature", plant=plant, judge=SIGNATURE)
    for name, kind, plant in (
        ("figures", "figures inflated", _inflated),
        ("cuda", "CUDA asked for, CPU used", _claimed_with_table),
        ("card", "model card edited", _text(CARD_FILE, lambda data: data + b"\nApproved for medical use.\n")),
        ("licence", "model card edited", _manifest(lambda m: m["data"].update(licence="public domain"))),
        ("version", "manifest edited", _manifest(lambda m: m.update(version="9.9.9"))),
        ("picture", "model card edited", lambda c: c.update({CONFUSION_FILE: c[RELIABILITY_FILE]})),
        (
            "labels-report",
            "figures inflated",
            _json(EVALUATION_FILE, lambda e: e["labels"][0].update(f1=0.123)),
        ),
    )
)

FAULTS: tuple[Fault, ...] = (*_EDITED, *_SUMS, *_EXCHANGED, *_SIGNED)
