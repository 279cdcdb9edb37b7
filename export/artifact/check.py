"""Checking an artifact on arrival: `python -m export.artifact.check ARTIFACT`, or `ferry check ARTIFACT`.

Everything is judged from the packaged bytes, and all findings are listed.
"""

import json
import sys
from pathlib import Path
from typing import Any

from export.artifact.goldens import golden_tolerance, replay_goldens
from export.artifact.layout import (
    ALL_FILES,
    BOUND_FILES,
    CONFUSION_FILE,
    EVALUATION_FILE,
    GOLDENS_FILE,
    MANIFEST_FILE,
    RELIABILITY_FILE,
    VERIFICATION_FILE,
    VERIFIED_FILES,
    ArtifactError,
)
from export.artifact.load import RUNTIMES, Artifact, open_artifact, open_model
from export.contract import LOGITS, TOKENIZER_CONFIG_FILE, TOKENIZER_FILE, TOKENIZER_JSON_FILE
from export.errors import FerryError
from export.proof.graph_checks import check_files
from export.tokenizer import huggingface_tokenizer, huggingface_tokenizer_config


def check_artifact(folder: Path) -> dict[str, Any]:
    """Check every promise that an artifact makes, and return its manifest.

    Raises:
        ArtifactError: lists everything that was found wrong.
    """
    artifact = open_artifact(folder)
    problems = _check_files(artifact)
    # What follows reads the files; there is nothing to learn from damaged ones.
    if not problems:
        for check in (_check_contents, _check_verification, _check_goldens):
            try:
                problems += check(artifact)
            except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
                problems.append(f"a file does not hold what Ferry writes into it ({error!r}).")
    if problems:
        raise ArtifactError([f"{folder} is not sound:", *(f"  {problem}" for problem in problems)])
    return artifact.manifest


def _check_files(artifact: Artifact) -> list[str]:
    found = {path.name for path in artifact.folder.iterdir()}
    problems = [f"{name} is missing." for name in sorted(set(ALL_FILES) - found)]
    problems += [f"{name} does not belong to an artifact." for name in sorted(found - set(ALL_FILES))]
    for name in BOUND_FILES:
        if name in found:
            try:
                size = len(artifact.read(name))
            except ArtifactError as error:
                problems += error.problems
                continue
            if size != artifact.manifest["files"][name]["bytes"]:
                problems.append(f"{name} has {size} bytes; the manifest says otherwise.")
    return problems


def _check_contents(artifact: Artifact) -> list[str]:
    """Check what the files say of each other: contract, metadata, weights, tokenizers, verification."""
    problems = [f"{result.name}: {problem}" for result in check_files(artifact.read) for problem in result.problems]
    tokenizer = artifact.tokenizer()
    if tokenizer.vocab_size != artifact.limits.vocab_size:
        problems.append(
            f"the tokenizer has {tokenizer.vocab_size} pieces; the contract says {artifact.limits.vocab_size}."
        )
    # Both files follow from tokenizer.model, so what they hold is compared and not what it does.
    model, max_length = artifact.read(TOKENIZER_FILE), artifact.limits.max_length
    if json.loads(artifact.read(TOKENIZER_JSON_FILE)) != json.loads(
        huggingface_tokenizer(model, max_length=max_length)
    ):
        problems.append(f"{TOKENIZER_JSON_FILE} is not the tokenizer of {TOKENIZER_FILE}.")
    if json.loads(artifact.read(TOKENIZER_CONFIG_FILE)) != huggingface_tokenizer_config(max_length=max_length):
        problems.append(f"{TOKENIZER_CONFIG_FILE} does not fit {TOKENIZER_FILE}.")
    return problems


def _check_verification(artifact: Artifact) -> list[str]:
    """Check that verification passed, on these files, and that the manifest repeats what it found."""
    verification, manifest = json.loads(artifact.read(VERIFICATION_FILE)), artifact.manifest
    problems = []
    if verification["verdict"] != "passed" or verification["failures"]:
        problems.append(f"{VERIFICATION_FILE} does not say that verification passed.")
    told = {"verdict": verification["verdict"], "providers": verification["providers"]}
    if manifest["verification"] != told:
        problems.append(f"{MANIFEST_FILE} says of the verification what {VERIFICATION_FILE} does not.")
    bound = {name: manifest["files"][name]["sha256"] for name in VERIFIED_FILES}
    if verification["inputs"]["files"] != bound:
        problems.append(f"{VERIFICATION_FILE} is about other files than these.")
    test = verification["test_split"]
    accuracy = test["backends"][0]["accuracy"]
    # Answers that rounding decides may fall either way, and the record rounds to six digits.
    if not abs(manifest["metrics"]["test"]["accuracy"] - accuracy) <= test["undecided"] / test["answers"] + 1e-6:
        problems.append(f"{MANIFEST_FILE} gives another test accuracy than {VERIFICATION_FILE}.")
    evaluation = json.loads(artifact.read(EVALUATION_FILE))
    if evaluation["metrics"] != manifest["metrics"]:
        problems.append(f"{MANIFEST_FILE} gives other metrics than {EVALUATION_FILE}.")
    pictures = {name: manifest["files"][name]["sha256"] for name in (CONFUSION_FILE, RELIABILITY_FILE)}
    if evaluation["pictures"] != pictures:
        problems.append(f"{EVALUATION_FILE} is about other pictures than these.")
    if artifact.goldens()["tolerance"][LOGITS] != golden_tolerance(verification):
        problems.append(f"{GOLDENS_FILE} has another tolerance than {VERIFICATION_FILE}.")
    return problems


def _check_goldens(artifact: Artifact) -> list[str]:
    goldens = artifact.goldens()
    problems: list[str] = []
    if not goldens["texts"] or not goldens["batches"]:
        problems.append(f"{GOLDENS_FILE} must hold texts and batches.")
    for runtime in RUNTIMES:
        try:
            problems += replay_goldens(artifact, open_model(artifact, runtime), goldens)
        except FerryError as error:
            problems.append(f"{runtime}: {error}")
    return problems


def main() -> None:
    try:
        check_artifact(Path(sys.argv[1]))
    except FerryError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
