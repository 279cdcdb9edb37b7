"""Checking an artifact on arrival: `python -m export.artifact.check ARTIFACT`, or `ferry check ARTIFACT`.

Everything is judged from the packaged bytes, and all findings are listed.
"""

import json
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from export.artifact.archive import top_folder
from export.artifact.findings import Finding, structural
from export.artifact.goldens import golden_tolerance, precision_tolerances
from export.artifact.layout import (
    ALL_FILES,
    BOUND_FILES,
    CONFUSION_FILE,
    EVALUATION_FILE,
    GOLDENS_FILE,
    KNOWN_FILES,
    MANIFEST_FILE,
    RELIABILITY_FILE,
    SUMS_FILE,
    VERIFICATION_FILE,
    VERIFICATION_PAGE,
    VERIFIED_FILES,
    ArtifactError,
    optional_in,
)
from export.artifact.limits import MAX_SIZE
from export.artifact.load import RUNTIMES, Artifact, read_manifest
from export.artifact.replay import replay
from export.artifact.signature import check_signature, load_public_key, signature_path
from export.artifact.source import Source, open_source
from export.contract import LOGITS, TOKENIZER_CONFIG_FILE, TOKENIZER_FILE, TOKENIZER_JSON_FILE
from export.errors import FerryError
from export.files import is_same, parse_json, sha256_bytes
from export.onnx_export import ONNX_FILE
from export.proof.checks import Files, check_files, find_texts
from export.proof.checks.files import UNREADABLE
from export.proof.placement import PROVIDERS
from export.proof.precision_table import SPEAKERS
from export.proof.report import VERIFIED, page
from export.tokenizer import huggingface_tokenizer, huggingface_tokenizer_config


class Judgement(NamedTuple):
    """Everything that was found, the manifest, if it could be read, and what could not be judged here, and why."""

    findings: list[Finding]
    manifest: dict[str, Any] | None
    notes: tuple[str, ...] = ()


def check_artifact(
    path: Path,
    *,
    max_size: int = MAX_SIZE,
    public_key: Path | None = None,
    signature: Path | None = None,
    tell: Callable[[str], object] = lambda note: None,
) -> dict[str, Any]:
    """Check every promise that an artifact makes, and return its manifest.

    Args:
        path: see `judge`.
        max_size: see `judge`.
        public_key: see `judge`.
        signature: see `judge`.
        tell: takes what could not be judged here, and why.

    Raises:
        ArtifactError: lists everything that was found wrong.
        ValueError: if the public key is none.
    """
    findings, manifest, notes = judge(path, max_size=max_size, public_key=public_key, signature=signature)
    for note in notes:
        tell(note)
    if findings or manifest is None:
        # A file that can't be read is found by every check that wants it.
        problems = dict.fromkeys(f"  {finding.problem}" for finding in findings)
        raise ArtifactError([f"{path} is not sound:", *problems])
    return manifest


def judge(
    path: Path, *, max_size: int = MAX_SIZE, public_key: Path | None = None, signature: Path | None = None
) -> Judgement:
    """Judge an artifact.

    No model file is loaded, for it is a program, before names, hashes and, where it is asked for, the signature were
    found right.

    Args:
        path: the artifact's folder or tar.
        max_size: how many bytes all files together may have.
        public_key: a file in PEM; with it, a signature by this key is required.
        signature: its file; None: the one beside the artifact.

    Raises:
        ValueError: if the public key is none.
    """
    key = None if public_key is None else load_public_key(public_key)
    try:
        source = open_source(path, max_size)
    except ArtifactError as error:
        return Judgement(structural("names", error.problems), None)
    findings = _check_names(source)
    if findings:
        return Judgement(findings, None)
    try:
        artifact = Artifact(source, read_manifest(source))
    except ArtifactError as error:
        return Judgement(structural("manifest", error.problems), None)
    findings = _check_top(artifact) + _check_hashes(artifact)
    if key is not None and not findings:
        file = signature or signature_path(path, artifact.manifest)
        findings += structural("signature", check_signature(file, key, digests_of(artifact)))
    notes: tuple[str, ...] = ()
    # What follows reads the files; there is nothing to learn from damaged ones.
    if not findings:
        # What nobody reads does no harm to the rest.
        findings += _check_others(source)
        # Kept to the end, for what the checks read is what replays.
        files = Files(artifact.read, optional=optional_in(artifact.manifest["files"]))
        results = check_files(files)
        findings += [finding for result in results for finding in structural(result.name, result.problems)]
        notes = tuple(result.note for result in results if result.note)
        checks: dict[str, Callable[[Artifact], Iterable[Finding]]] = {
            "documents": _check_documents,
            "contents": _check_contents,
            "texts": _check_texts,
            "verification": _check_verification,
            "replay": partial(replay, files=files),
        }
        for name, check in checks.items():
            try:
                # One by one: what was found before a check met a file that it can't read stays.
                for finding in check(artifact):
                    findings.append(finding)
            except UNREADABLE as error:
                problem = f"a file does not hold what Ferry writes into it ({error!r})."
                findings += structural(name, [problem])
    return Judgement(findings, artifact.manifest, notes)


def digests_of(artifact: Artifact) -> dict[str, str]:
    """Return the SHA-256 of every file of an artifact whose files have the hashes of its manifest."""
    hashes = {name: entry["sha256"] for name, entry in artifact.manifest["files"].items()}
    return hashes | {name: sha256_bytes(artifact.source.read(name)) for name in (MANIFEST_FILE, SUMS_FILE)}


def _check_names(source: Source) -> list[Finding]:
    problems = list(source.problems)
    # A tar that is refused may not have been read to its end.
    if source.top is None or not problems:
        problems += [f"{name} is missing." for name in sorted(set(ALL_FILES) - source.names)]
    return structural("names", problems) + (_check_others(source) if problems else [])


def _check_others(source: Source) -> list[Finding]:
    others = sorted(source.names - set(KNOWN_FILES))
    return structural("names", [f"{ascii(name)[1:-1]} does not belong to an artifact." for name in others])


def _check_top(artifact: Artifact) -> list[Finding]:
    wanted = top_folder(artifact.manifest["name"], artifact.manifest["version"])
    if artifact.source.top in (None, wanted):
        return []
    return structural("names", [f"the tar holds the folder {artifact.source.top!a}; wanted {wanted!r}."])


def _check_hashes(artifact: Artifact) -> list[Finding]:
    bound = artifact.manifest["files"]
    present = optional_in(artifact.source.names)
    problems = [f"{name} is missing." for name in optional_in(bound) if name not in present]
    problems += [f"{name} is in no line of {MANIFEST_FILE}." for name in present if name not in bound]
    for name in (*BOUND_FILES, *optional_in(bound)):
        if name in artifact.source.names:
            try:
                size = len(artifact.read(name))
            except ArtifactError as error:
                problems += error.problems
                continue
            if size != artifact.manifest["files"][name]["bytes"]:
                problems.append(f"{name} has {size} bytes; the manifest says otherwise.")
    return structural("hashes", problems)


def _check_documents(artifact: Artifact) -> list[Finding]:
    """Check that every JSON file is read alike by every reader."""
    problems = []
    for name in BOUND_FILES:
        if name.endswith(".json"):
            try:
                parse_json(artifact.read(name))
            except ValueError as error:
                problems.append(f"{name} is not valid JSON: {error}.")
    return structural("JSON", problems)


def _check_texts(artifact: Artifact) -> list[Finding]:
    """Look for the goldens' texts where no text belongs."""
    texts = [golden["text"] for golden in artifact.goldens()["texts"]]
    return structural("no sample text", find_texts(artifact.read, texts))


def _check_contents(artifact: Artifact) -> list[Finding]:
    """Check what the files say of each other: tokenizers."""
    problems = []
    tokenizer = artifact.tokenizer()
    if tokenizer.vocab_size != artifact.limits.vocab_size:
        problems.append(
            f"the tokenizer has {tokenizer.vocab_size} pieces; the contract says {artifact.limits.vocab_size}."
        )
    # Both files follow from tokenizer.model, so what they hold is compared and not what it does.
    model, max_length = artifact.read(TOKENIZER_FILE), artifact.limits.max_length
    wanted = json.loads(huggingface_tokenizer(model, max_length=max_length))
    if not is_same(json.loads(artifact.read(TOKENIZER_JSON_FILE)), wanted):
        problems.append(f"{TOKENIZER_JSON_FILE} is not the tokenizer of {TOKENIZER_FILE}.")
    wanted = huggingface_tokenizer_config(max_length=max_length)
    if not is_same(json.loads(artifact.read(TOKENIZER_CONFIG_FILE)), wanted):
        problems.append(f"{TOKENIZER_CONFIG_FILE} does not fit {TOKENIZER_FILE}.")
    return structural("tokenizer", problems)


def _contradictions(verification: dict[str, Any], optional: list[str]) -> list[str]:
    """Compare what a proof concludes with what it tells part by part."""
    parity, task = verification["parity"], verification["test_split"]
    searched = [part for search in verification["searches"] for part in search["backends"]]
    parts = [*parity["backends"], *task["backends"], *verification["invariances"], *searched]
    # Without signs, or one part's could make up for another's.
    failed = sum(abs(part["failures"]) for part in parts) + len(verification["counterexamples"])
    failed += sum(len(check["problems"]) for check in verification["checks"])
    failed += sum(len(placement["faults"]) for placement in verification["placement"])
    problems = [f"{VERIFICATION_FILE} says that verification passed, and tells of {failed} failures."] if failed else []
    needed = {backend for backend, _ in RUNTIMES.values()} | {SPEAKERS[name] for name in optional}
    for name, told in (("grid", parity["backends"]), ("test split", task["backends"])):
        missing = sorted(needed - {part["backend"] for part in told})
        if missing:
            problems.append(f"{VERIFICATION_FILE} does not tell how {', '.join(missing)} answered the {name}.")
    if sorted(row["file"] for row in verification["precisions"]) != sorted([ONNX_FILE, *optional]):
        problems.append(f"{VERIFICATION_FILE} compares the precisions of other files than these.")
    for part in task["backends"]:
        budget, lost = part["accuracy_budget"], task["backends"][0]["accuracy"] - part["accuracy"]
        # Written so that NaN fails; both are rounded to six digits.
        if budget is not None and not lost <= budget + 2e-6:
            problems.append(f"{VERIFICATION_FILE} lets {part['backend']} lose {100 * lost:.2f} points of accuracy.")
    if not verification["checks"] or not verification["invariances"]:
        problems.append(f"{VERIFICATION_FILE} tells of no checks or of no invariances.")
    for name, state in verification["providers"].items():
        ran = any(placement["provider"] == PROVIDERS[name] for placement in verification["placement"])
        if state == VERIFIED and not ran:
            problems.append(f"{VERIFICATION_FILE} calls {name} verified, and no session ran there.")
    return problems


def _check_verification(artifact: Artifact) -> list[Finding]:
    """Check that verification passed, on these files, and that the manifest repeats what it found."""
    verification, manifest = json.loads(artifact.read(VERIFICATION_FILE)), artifact.manifest
    problems = []
    if verification["verdict"] != "passed" or verification["failures"]:
        problems.append(f"{VERIFICATION_FILE} does not say that verification passed.")
    problems += _contradictions(verification, optional_in(manifest["files"]))
    told = {"verdict": verification["verdict"], "providers": verification["providers"]}
    if not is_same(manifest["verification"], told):
        problems.append(f"{MANIFEST_FILE} says of the verification what {VERIFICATION_FILE} does not.")
    bound = {name: manifest["files"][name]["sha256"] for name in (*VERIFIED_FILES, *optional_in(manifest["files"]))}
    if not is_same(verification["inputs"]["files"], bound):
        problems.append(f"{VERIFICATION_FILE} is about other files than these.")
    test = verification["test_split"]
    accuracy = test["backends"][0]["accuracy"]
    # Answers that rounding decides may fall either way, and the record rounds to six digits.
    if not abs(manifest["metrics"]["test"]["accuracy"] - accuracy) <= test["undecided"] / test["answers"] + 1e-6:
        problems.append(f"{MANIFEST_FILE} gives another test accuracy than {VERIFICATION_FILE}.")
    evaluation = json.loads(artifact.read(EVALUATION_FILE))
    if not is_same(evaluation["metrics"], manifest["metrics"]):
        problems.append(f"{MANIFEST_FILE} gives other metrics than {EVALUATION_FILE}.")
    pictures = {name: manifest["files"][name]["sha256"] for name in (CONFUSION_FILE, RELIABILITY_FILE)}
    if not is_same(evaluation["pictures"], pictures):
        problems.append(f"{EVALUATION_FILE} is about other pictures than these.")
    tolerance = artifact.goldens()["tolerance"]
    got = (tolerance[LOGITS], tolerance.get("precisions", {}))
    if got != (golden_tolerance(verification), precision_tolerances(verification)):
        problems.append(f"{GOLDENS_FILE} has another tolerance than {VERIFICATION_FILE}.")
    if artifact.read(VERIFICATION_PAGE) != page(verification).encode():
        problems.append(f"{VERIFICATION_PAGE} is not the page that this version of Ferry makes of {VERIFICATION_FILE}.")
    return structural("verification", problems)


def main() -> None:
    """Check the artifact that the first argument names; the second is how many bytes it may have."""
    path, max_size = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else MAX_SIZE
    try:
        check_artifact(path, max_size=max_size)
    except FerryError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
