"""Faults that never become an artifact: a run whose stages do not fit each other, and sessions that ran elsewhere."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from export.artifact.layout import TOLD_FILES, VERIFICATION_FILE, VERIFIED_FILES
from export.files import dump_json, sha256_bytes
from export.onnx_export import ONNX_FILE
from export.proof.placement import CPU_PROVIDER, PROVIDERS, Assignment
from export.torchscript import TORCHSCRIPT_FILE
from pipeline.package import SOURCES
from pipeline.run import (
    EXPORT_FOLDER,
    EXPORT_RECORD,
    STAGE_FILES,
    TRAIN_FOLDER,
    TRAIN_RECORD,
    VERIFY_FOLDER,
    VERIFY_RECORD,
    record_hash,
)
from tests.sabotage.artifact import Contents
from tests.sabotage.faults.fault import PACKAGE, PLACEMENT, Fault

Change = Callable[[Path], object]
CUDA = PROVIDERS["cuda"]
MODEL_FILES = STAGE_FILES[EXPORT_RECORD]


def lay_run(folder: Path, contents: Contents) -> Path:
    """Lay an artifact's files out as the run folder that they were packaged from."""
    stages: dict[str, dict[str, bytes]] = {TRAIN_FOLDER: {}, EXPORT_FOLDER: {}, VERIFY_FOLDER: {}}
    for name in VERIFIED_FILES:
        stages[SOURCES[name]][name] = contents[name]
    stages[TRAIN_FOLDER].update({name: contents[name] for name in TOLD_FILES})
    for name in STAGE_FILES[TRAIN_RECORD] - stages[TRAIN_FOLDER].keys():
        stages[TRAIN_FOLDER][name] = b"the test split, which packaging does not read"
    manifest = json.loads(contents["manifest.json"])
    record = {
        "name": manifest["name"],
        "config": {},
        "data": {**manifest["data"], "truncated_rows": dict.fromkeys(manifest["data"]["rows"], 0)},
        "metrics": manifest["metrics"],
        "golden_texts": [],
        "training": {"parameters": 1},
        "files": {name: sha256_bytes(data) for name, data in stages[TRAIN_FOLDER].items()},
    }
    exported = {"files": {name: sha256_bytes(contents[name]) for name in MODEL_FILES}, "inputs": record["files"]}
    proof = json.loads(contents[VERIFICATION_FILE])
    proof["inputs"]["record"] = record_hash(record)
    stages[TRAIN_FOLDER][TRAIN_RECORD] = dump_json(record).encode()
    stages[EXPORT_FOLDER][EXPORT_RECORD] = dump_json(exported).encode()
    stages[VERIFY_FOLDER][VERIFY_RECORD] = dump_json(proof).encode()
    for stage, files in stages.items():
        (folder / stage).mkdir(parents=True)
        for name, data in files.items():
            (folder / stage / name).write_bytes(data)
    return folder


def _run(change: Change) -> Callable[[Path, Contents], Path]:
    def lay(folder: Path, contents: Contents) -> Path:
        lay_run(folder, contents)
        change(folder)
        return folder

    return lay


def _edit(stage: str, name: str, edit: Callable[[Any], object]) -> Change:
    def change(run: Path) -> None:
        document = json.loads((run / stage / name).read_text())
        edit(document)
        (run / stage / name).write_text(dump_json(document))

    return change


def _replace(stage: str, name: str) -> Change:
    """Write another file of the kind, as a later export or training does."""

    def change(run: Path) -> None:
        data = bytearray((run / stage / name).read_bytes())
        data[len(data) // 2] ^= 1
        (run / stage / name).write_bytes(data)

    return change


def _record_too(run: Path) -> None:
    """Train again, with a record that fits: the proof is about the model before."""
    _replace(TRAIN_FOLDER, "model.safetensors")(run)
    hashed = sha256_bytes((run / TRAIN_FOLDER / "model.safetensors").read_bytes())
    _edit(TRAIN_FOLDER, TRAIN_RECORD, lambda record: record["files"].update({"model.safetensors": hashed}))(run)


def _assigned(provider: str, *, floats: bool = True, options: dict[str, str] | None = None) -> str:
    """Write an assignment table of three nodes, the second of them somewhere else."""
    rows = [
        Assignment(node="node_linear", operator="Gemm", provider=CUDA, yields_float=floats),
        Assignment(node="node_gelu", operator="Gelu", provider=provider, yields_float=floats),
        Assignment(node="node_shape", operator="Shape", provider=CPU_PROVIDER, yields_float=False),
    ]
    return dump_json({"rows": [vars(row) for row in rows], "options": options or {"use_tf32": "0"}})


def _table(text: str) -> Callable[[Path, Contents], Path]:
    def lay(path: Path, _: Contents) -> Path:
        path.write_text(text)
        return path

    return lay


# Each: its name, the kind, and what is done to the run folder.
_RUNS: tuple[tuple[str, str, Change], ...] = (
    ("stale-onnx", "stale verification", _replace(EXPORT_FOLDER, ONNX_FILE)),
    ("stale-pt", "stale verification", _replace(EXPORT_FOLDER, TORCHSCRIPT_FILE)),
    ("another-checkpoint", "stale verification", _record_too),
    ("not-verified", "stale verification", lambda run: (run / VERIFY_FOLDER / VERIFY_RECORD).unlink()),
    ("failed", "stale verification", _edit(VERIFY_FOLDER, VERIFY_RECORD, lambda r: r.update(verdict="failed"))),
    ("proof-damaged", "proof edited", _edit(VERIFY_FOLDER, VERIFY_RECORD, lambda r: r.pop("inputs"))),
    (
        "record-edited",
        "figures inflated",
        _edit(TRAIN_FOLDER, TRAIN_RECORD, lambda r: r["metrics"]["test"].update(accuracy=0.99)),
    ),
    ("evaluation-edited", "figures inflated", _replace(TRAIN_FOLDER, "evaluation.json")),
    ("model-missing", "file missing", lambda run: (run / EXPORT_FOLDER / ONNX_FILE).unlink()),
)
_TABLES: tuple[tuple[str, str, str], ...] = (
    ("fallback", "CUDA asked for, CPU used", _assigned(CPU_PROVIDER)),
    ("elsewhere", "CUDA asked for, CPU used", _assigned("OpenVINOExecutionProvider")),
    ("tf32", "TF32 on", _assigned(CUDA, options={"use_tf32": "1"})),
    ("tf32-unknown", "TF32 on", _assigned(CUDA, options={"device_id": "0"})),
    ("nothing-proven", "CUDA asked for, CPU used", _assigned(CUDA, floats=False)),
)

FAULTS = (
    *(
        Fault(id=f"run-{name}", kind=kind, lay=_run(change), judge=PACKAGE, check=PACKAGE)
        for name, kind, change in _RUNS
    ),
    *(
        Fault(id=f"placement-{name}", kind=kind, lay=_table(text), judge=PLACEMENT, check=PLACEMENT)
        for name, kind, text in _TABLES
    ),
)
