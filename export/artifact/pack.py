"""Writing an artifact: the proven files, and what follows from them. A function of its inputs, to the byte."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from export.artifact.card import model_card
from export.artifact.goldens import golden_tolerance, make_goldens, precision_tolerances
from export.artifact.layout import (
    BOUND_FILES,
    CARD_FILE,
    EVALUATION_FILE,
    GOLDENS_FILE,
    MANIFEST_FILE,
    SUMS_FILE,
    VERIFICATION_FILE,
    VERIFICATION_PAGE,
    optional_in,
    sums_text,
)
from export.contract import FORMAT, TOKENIZER_FILE
from export.files import dump_json, sha256_bytes
from export.model import CONFIG_FILE, model_limits
from export.proof.report import page
from export.proof.runtimes import load_reference, one_torch_thread
from export.tokenizer import Tokenizer
from export.torchscript import TORCHSCRIPT_FILE, load_torchscript


def write_artifact(
    folder: Path,
    proven: Mapping[str, bytes],
    told: Mapping[str, bytes],
    *,
    version: str,
    record: dict[str, Any],
    verification: dict[str, Any],
) -> None:
    """Write an artifact into an empty folder.

    Args:
        folder: an empty folder.
        proven: the bytes of the model, configuration and tokenizer files that verification judged, by name.
        told: the bytes of the evaluation and its pictures, as training wrote them.
        version: the artifact's version.
        record: the record of training (train.json).
        verification: the result of verification, which passed.
    """
    config = json.loads(proven[CONFIG_FILE])
    limits = model_limits(config)
    _, metadata = load_torchscript(proven[TORCHSCRIPT_FILE])
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "name": record["name"],
        "version": version,
        "metadata": metadata,
        "metrics": record["metrics"],
        "verification": {"verdict": verification["verdict"], "providers": verification["providers"]},
        "data": {key: record["data"][key] for key in ("name", "sha256", "licence", "attribution", "origin", "rows")},
    }
    # On one thread, so that the machine's cores do not show in the bytes.
    with one_torch_thread():
        goldens = make_goldens(
            record["golden_texts"],
            tokenizer=Tokenizer(proven[TOKENIZER_FILE], max_length=limits.max_length),
            reference=load_reference(proven.__getitem__),
            config=config,
            metadata=metadata,
            tolerance=golden_tolerance(verification),
            precisions=precision_tolerances(verification),
        )
    contents = {**proven, **told}
    contents[GOLDENS_FILE] = dump_json(goldens).encode()
    contents[VERIFICATION_FILE] = dump_json(verification).encode()
    contents[VERIFICATION_PAGE] = page(verification).encode()
    evaluation = json.loads(told[EVALUATION_FILE])
    contents[CARD_FILE] = model_card(
        manifest, config=config, record=record, verification=verification, evaluation=evaluation
    ).encode()
    assert set(contents) == {*BOUND_FILES, *optional_in(proven)}
    manifest["files"] = {
        name: {"sha256": sha256_bytes(data), "bytes": len(data)} for name, data in sorted(contents.items())
    }
    contents[MANIFEST_FILE] = dump_json(manifest).encode()
    contents[SUMS_FILE] = sums_text({name: sha256_bytes(data) for name, data in contents.items()}).encode()
    for name, data in contents.items():
        (folder / name).write_bytes(data)
