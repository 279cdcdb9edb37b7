"""The report says everything that was found, and the same thing twice."""

import json

from export.files import dump_json
from export.proof import report
from tests.export.proof.subjects import TESTED, prove_files


def test_a_good_proof_reads_as_passed_and_says_what_was_not_asked(good: dict[str, bytes]) -> None:
    proof = prove_files(good)
    text = report.text(proof)
    assert text.splitlines()[-1] == "Verdict: passed. CPU: verified. CUDA: not verified."
    assert all(line == line.rstrip() for line in text.splitlines())
    for backend in TESTED:
        assert backend in text
    document = json.loads(dump_json(report.document(proof)))
    assert document["verdict"] == "passed"
    assert document["providers"] == {"cpu": "verified", "cuda": "not verified"}
    assert document["failures"] == []
    assert [part["backend"] for part in document["parity"]["backends"]] == list(TESTED)
    assert document["test_split"]["rows"] == 30


def test_two_proofs_give_one_document(good: dict[str, bytes]) -> None:
    assert dump_json(report.document(prove_files(good))) == dump_json(report.document(prove_files(good)))


def test_every_failure_is_listed_in_both(good: dict[str, bytes]) -> None:
    files = {**good, "tokenizer.model": b"another", "model.onnx": b"no model"}
    proof = prove_files(files, good)
    text = report.text(proof)
    document = report.document(proof)
    assert document["verdict"] == "failed"
    assert document["providers"]["cpu"] == "failed"
    assert len(document["failures"]) == len(proof.all_failures) > 3
    for failure in proof.all_failures:
        assert f"  {failure.backend}: {failure.where}: {failure.reason}" in text
