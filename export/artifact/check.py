"""Checking an artifact on arrival: `python -m export.artifact.check ARTIFACT`, or `ferry check ARTIFACT`.

Everything is judged from the packaged bytes, and all findings are listed.
"""

import json
import sys
from pathlib import Path
from typing import Any

import tokenizers

from export.artifact.goldens import replay_goldens
from export.artifact.layout import ALL_FILES, BOUND_FILES, VERIFICATION_FILE, ArtifactError
from export.artifact.load import RUNTIMES, Artifact, Classifier, open_artifact
from export.contract import TOKENIZER_JSON_FILE, normalise_text
from export.errors import FerryError
from export.proof.graph_checks import check_files


def check_artifact(folder: Path) -> dict[str, Any]:
    """Check every promise that an artifact makes, and return its manifest.

    Raises:
        ArtifactError: lists everything that was found wrong.
    """
    artifact = open_artifact(folder)
    problems = _check_files(artifact)
    # What follows reads the files; there is nothing to learn from damaged ones.
    problems = problems or [*_check_contents(artifact), *_check_goldens(artifact)]
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
    verification = json.loads(artifact.read(VERIFICATION_FILE))
    if verification["verdict"] != "passed":
        problems.append(f"{VERIFICATION_FILE} does not say that verification passed.")
    judged = verification["inputs"]["files"]
    problems += [
        f"{name} is not the file that was verified."
        for name in sorted(judged)
        if artifact.manifest["files"].get(name, {}).get("sha256") != judged[name]
    ]
    return problems


def _check_goldens(artifact: Artifact) -> list[str]:
    goldens = artifact.goldens()
    problems: list[str] = []
    for runtime in RUNTIMES:
        try:
            problems += replay_goldens(artifact, Classifier(artifact, runtime), goldens)
        except FerryError as error:
            problems.append(f"{runtime}: {error}")
    other = tokenizers.Tokenizer.from_str(artifact.read(TOKENIZER_JSON_FILE).decode())
    problems += [
        f"{TOKENIZER_JSON_FILE} gives other ids for golden text {number}."
        for number, case in enumerate(goldens["texts"], start=1)
        if other.encode(normalise_text(case["text"])).ids != case["input_ids"]
    ]
    return problems


def main() -> None:
    try:
        check_artifact(Path(sys.argv[1]))
    except FerryError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
