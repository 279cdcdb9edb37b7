"""The report says everything that was found, and the same thing twice."""

import json
from dataclasses import replace
from typing import Any

import pytest

from export.files import dump_json
from export.proof import report
from export.proof.parity import Failure
from export.proof.prove import Proof
from export.proof.report.document import NOT_ASKED, round_to
from export.proof.report.text import MOST_FAILURES, WIDTH
from tests.export.proof.proofs import BACKENDS, CASES, REPRODUCTION, SMALL_ERRORS, bad_proof, good_proof
from tests.export.proof.subjects import TESTED, prove_files

GOOD_TEXT = """\
Parity with eager in float64, 6 inputs of the grid
  float32 limit 1.18e-05 = 4 x 2.00e-06 (eager) + 4 roundings at 8
  backend                   max error  used  p99       argmax  worst input        failed
  eager                     2.00e-06   0.00  1.50e-06  100 %   B1-T70-ones        0
  torchscript               2.00e-06   0.17  1.50e-06  100 %   B1-T70-ones        0
  onnxruntime-cpu-all-int8  2.00e-06   -     1.50e-06  100 %   B1-T70-ones        0
  onnx-reference            1.50e-06   0.13  1.50e-06  100 %   B2-T64-ids-from-0  0

Invariance: the largest difference between two answers to one row, told in other ways
  backend                   right     left      holes     company   order     used  failed
  eager                     3.00e-07  3.00e-07  3.00e-07  2.00e-07  0.00e+00  0.03  0
  torchscript               3.00e-07  3.00e-07  3.00e-07  2.00e-07  0.00e+00  0.03  0
  onnxruntime-cpu-all-int8  3.00e-07  3.00e-07  3.00e-07  2.00e-07  0.00e+00  0.03  0

Search, the model as it is: 20 inputs drawn, cut by the clock; 64 were asked for
  backend      max error  used  worst input           failed
  eager        3.00e-06   0.00  B4-T9-random-texts-7  0
  torchscript  3.00e-06   0.25  B4-T9-random-texts-7  0

Search, weight matrices times 8: 16 inputs drawn
  backend  max error  used  worst input           failed
  eager    3.00e-06   0.00  B4-T9-random-texts-7  0

Test split, 30 rows, 30 answers, 1 of them too close to call
  float32 limit 1.18e-05 = 4 x 2.00e-06 (eager) + 4 roundings at 8
  backend                   accuracy  labels as eager  max error  used  failed
  eager                     90.00 %   30               2.00e-06   0.00  0
  torchscript               90.00 %   30               2.00e-06   0.17  0
  onnxruntime-cpu-all-int8  90.00 %   30               2.00e-06   -     0

Placement: every node that yields a float tensor runs on the provider asked for
  backend                   provider  nodes  float  integer on the CPU  options     failed
  onnxruntime-cpu-all-int8  CUDA      12     10     2                   use_tf32=0  0

Files
  check         result
  onnx.checker  ok
  weights       ok

Not run: aot-inductor: there is no C++ compiler (g++)

Verdict: passed. CPU: verified. CUDA: not verified."""
WHAT_FAILED = """\
Failures, 6
  files: weights: model.pt lacks the weight a
  files: weights: and b
  files: fresh export: the files were exported by torch 2.12
  torchscript: B2-T2-ones: error 4.56e-03, limit 1.18e-05
  torchscript: B1-T70-all-empty: 5 of 5 values are not finite
  torchscript: B3-T7-ones, right padding (1 columns): shape (3, 4), wanted (3, 5)

torchscript: error 4.56e-03, limit 1.18e-05
  the smallest failing input: batch 1 x sequence 1, met first at B2-T2-ones
  first guilty layer: encoder.blocks.1, aten::add: error 1.00e-03, limit 1.10e-06

import numpy as np

print("this program shows the failure")

Verdict: failed. CPU: failed. CUDA: not verified."""


def read_document(proof: Proof) -> dict[str, Any]:
    """Write the document and read it again, as whoever opens verification.json does."""
    document: dict[str, Any] = json.loads(dump_json(report.document(proof)))
    return document


def test_the_text_of_a_good_proof() -> None:
    assert report.text(good_proof()) == GOOD_TEXT


def test_the_text_of_a_bad_proof_ends_with_what_failed_and_a_program_to_copy() -> None:
    text = report.text(bad_proof())
    assert text[text.index("Failures") :] == WHAT_FAILED
    assert f"\n\n{REPRODUCTION}\n" in text
    assert "  weights       2 problems\n  fresh export  not made: the files were exported by torch 2.12\n" in text


def test_a_text_is_no_wider_than_a_terminal() -> None:
    proof = bad_proof("a reason " * 30)
    lines = report.text(proof).splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert all(line == line.rstrip() for line in lines)


def test_many_failures_of_a_backend_are_counted_but_all_of_the_files_are_told() -> None:
    many = tuple(
        Failure(backend=backend, where=f"case {number}", reason="wrong")
        for backend in ("files", "torchscript")
        for number in range(50)
    )
    text = report.text(replace(good_proof(), failures=many))
    assert text.count("files: case") == 50
    assert text.count("torchscript: case") == MOST_FAILURES
    assert f"torchscript: and {50 - MOST_FAILURES} more, in verification.json" in text


def test_backends_that_fail_alike_share_a_program() -> None:
    proof = bad_proof()
    (example,) = proof.counterexamples
    same = replace(example, backend="torchscript-frozen", reproduction="another program")
    text = report.text(replace(proof, counterexamples=(example, same)))
    assert "torchscript-frozen: error" in text
    assert "the same input and layer as torchscript; its own program is in verification.json" in text
    assert "another program" not in text
    other = replace(same, culprit=None)
    text = report.text(replace(proof, counterexamples=(example, other)))
    assert "another program" in text


def test_the_document_holds_every_error_in_the_order_of_the_cases() -> None:
    document = read_document(good_proof())
    assert document["format"] == 3
    assert document["verdict"] == "passed"
    assert document["providers"] == {"cpu": "verified", "cuda": "not verified"}
    assert document["failures"] == document["counterexamples"] == []
    parity = document["parity"]
    assert parity["cases"][4] == {"name": "B2-T2-one-token", "batch": 2, "length": 2, "pattern": "one-token"}
    assert [part["backend"] for part in parity["backends"]] == list(BACKENDS)
    assert parity["backends"][0]["errors"] == [1.2e-06, *SMALL_ERRORS[1:]]
    assert parity["backends"][3]["errors"] == [1.2e-06, NOT_ASKED, NOT_ASKED, 5e-07, 1e-06, 1.5e-06]
    assert parity["backends"][2]["limit"] is None
    assert parity["backends"][0]["distances"] == {
        "max_abs": 2e-06,
        "max_rel": 1.23e-05,
        "p99": 1.5e-06,
        "cosine": 1.0,
        "argmax_agreement": 1.0,
    }
    assert document["searches"][0]["cut"] is True
    assert document["searches"][0]["backends"][0]["worst_case"] == "B4-T9-random-texts-7"
    assert document["placement"][0]["integer_nodes_on_cpu"] == ["Shape shape_1", "Shape shape_2"]
    assert document["skipped"] == {"aot-inductor": "there is no C++ compiler (g++)"}
    assert document["effort"] == {"draws": 64, "seconds": 5.0, "seed": 0}


def test_what_is_not_finite_is_null_in_the_document() -> None:
    document = read_document(bad_proof())
    errors = document["parity"]["backends"][1]["errors"]
    assert (errors[2], errors[3]) == (None, 0.0046)
    law = next(part for part in document["invariances"] if part["failures"])
    assert law["max_difference"] is None
    assert law["curve"] == [{"amount": 1, "difference": None}, {"amount": 2, "difference": 0.0}]


def test_a_counterexample_is_whole_in_the_document() -> None:
    assert read_document(bad_proof())["counterexamples"] == [
        {
            "backend": "torchscript",
            "origin": "B2-T2-ones",
            "case": {"name": "B1-T1", "batch": 1, "length": 1},
            "smallest": True,
            "reason": "error 4.56e-03, limit 1.18e-05",
            "reproduction": REPRODUCTION,
            "culprit": {
                "module": "encoder.blocks.1",
                "operator": "aten::add",
                "distance": 0.001,
                "budget": 1.1e-06,
            },
        }
    ]


@pytest.mark.parametrize(
    ("value", "rounded"), [(0.0, 0.0), (1.2349e-7, 1.23e-7), (float("nan"), None), (float("-inf"), None), (None, None)]
)
def test_numbers_are_rounded_and_what_is_none_is_null(value: float | None, rounded: float | None) -> None:
    assert round_to(value) == rounded


def test_a_proof_without_eager_says_so() -> None:
    failure = Failure(backend="eager", where="the function that is to be proven", reason="no weights")
    proof = replace(
        good_proof(), parity=None, invariances=(), searches=(), task=None, placements={}, failures=(failure,)
    )
    document = read_document(proof)
    assert document["parity"] is None
    assert document["test_split"] is None
    text = report.text(proof)
    assert text.startswith("Files\n")
    assert "  eager: the function that is to be proven: no weights" in text


def test_a_real_proof_is_told_whole_and_twice_alike(good: dict[str, bytes]) -> None:
    proof = prove_files(good)
    text = report.text(proof)
    assert text.splitlines()[-1] == "Verdict: passed. CPU: verified. CUDA: not verified."
    assert max(map(len, text.splitlines())) <= WIDTH
    for backend in TESTED:
        assert backend in text
    document = read_document(proof)
    assert document["failures"] == []
    assert [part["backend"] for part in document["parity"]["backends"]] == list(TESTED)
    assert document["test_split"]["rows"] == 30
    assert len(document["parity"]["cases"]) > 100
    assert dump_json(document) == dump_json(report.document(prove_files(good)))


def test_every_failure_is_in_the_document(good: dict[str, bytes]) -> None:
    files = {**good, "tokenizer.model": b"another", "model.onnx": b"no model"}
    proof = prove_files(files, good)
    document = report.document(proof)
    assert document["verdict"] == "failed"
    assert document["providers"]["cpu"] == "failed"
    assert [(told["backend"], told["where"], told["reason"]) for told in document["failures"]] == [
        (failure.backend, failure.where, failure.reason) for failure in proof.all_failures
    ]
    assert len(document["failures"]) > 3


def test_the_cases_of_the_hand_made_proofs_are_named_as_the_grid_names_them() -> None:
    assert [case.input_ids.shape for case in CASES] == [(1, 2), (1, 70), (1, 70), (2, 2), (2, 2), (2, 64)]
