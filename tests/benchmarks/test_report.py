"""Parts and the results that are made of them."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner

from benchmarks import report
from benchmarks.inference.describe import latency_rows, latency_tables, own_table, start_table
from benchmarks.inference.measure import FLOOR, Timed
from benchmarks.parts import Part, merge, read_parts, write_part

RATIO = {
    "type": "object",
    "required": ["median", "low", "high", "peer"],
    "properties": {"median": {"type": "number"}, "low": {"type": "number"}, "high": {"type": "number"}},
}
SCHEMA = {
    "type": "object",
    "required": ["machine", "versions", "ratios", "left_out"],
    "properties": {
        "machine": {"type": "object", "required": ["processor", "cores", "system", "python"]},
        "versions": {"type": "object", "required": ["onnxruntime", "torch"]},
        "ratios": {"type": "object", "additionalProperties": RATIO},
        "left_out": {"type": "array", "items": {"type": "string"}},
    },
}


def shapes() -> list[Timed]:
    return [
        Timed(
            batch=batch,
            length=16,
            fill=fill,
            tokens=16 * batch,
            seconds={
                "ferry": [0.001, 0.002, 0.003],
                "optimum-plain": [0.002, 0.004, 0.006],
                "openvino": [0.0012, 0.0025, 0.003],
                FLOOR: [0.0009, 0.0018, 0.0027],
                **({"optimum-plain/sorted-4": [0.0015, 0.003, 0.0045]} if batch > 1 and fill == "half" else {}),
            },
        )
        for batch in (1, 8)
        for fill in ("full", "half")
    ]


def inference_part() -> Part:
    rows = latency_rows(shapes())
    starts = [{"candidate": "ferry", "bytes": 90_900_000, "load_ms": 83.6, "first_ms": 4.56}]
    return Part(
        name="inference",
        ratios={"fp32_full_1x16": {"median": 2.0, "low": 1.9, "high": 2.1, "peer": "optimum-plain"}},
        measured={"latency": rows},
        tables=[*latency_tables(rows), start_table(starts), own_table({"ferry": [2.0, 4.0, 3.0]}, 600)],
        left_out=["OpenVINO: not in this plan"],
    )


def training_part(**changes: Any) -> Part:
    ratio = {"median": 1.6, "low": 1.5, "high": 1.7, "peer": "hugging-face-trainer"}
    return replace(Part(name="training", ratios={"training_tokens": ratio}, measured={"steps": 3}), **changes)


def test_a_part_comes_back_as_it_was_written(tmp_path: Path) -> None:
    part = inference_part()
    write_part(tmp_path, part)
    assert read_parts(tmp_path) == [part]


def test_results_hold_all_parts_in_one_document(tmp_path: Path) -> None:
    document = merge([inference_part(), training_part()])
    jsonschema.validate(document, SCHEMA)
    assert set(document["ratios"]) == {"fp32_full_1x16", "training_tokens"}
    assert document["training"] == {"steps": 3}
    assert document["left_out"] == ["OpenVINO: not in this plan"]
    assert "node" not in document["machine"]


def test_two_parts_with_one_ratio_are_refused() -> None:
    with pytest.raises(ValueError, match="two parts give training_tokens"):
        merge([training_part(), training_part(name="again")])


def test_parts_of_two_machines_are_refused(tmp_path: Path) -> None:
    for part in (inference_part(), training_part(machine={"processor": "another"})):
        write_part(tmp_path, part)
    result = CliRunner().invoke(report.main, ["--parts", str(tmp_path), "--results", str(tmp_path / "results")])
    assert result.exit_code == 1
    assert result.stderr.startswith("report: training and inference were measured on other machines or with other")
    assert not (tmp_path / "results").exists()


def test_no_part_and_a_damaged_part_are_refused(tmp_path: Path) -> None:
    arguments = ["--parts", str(tmp_path), "--results", str(tmp_path / "results")]
    result = CliRunner().invoke(report.main, arguments)
    assert (result.exit_code, result.stderr) == (
        2,
        f"report: {tmp_path} holds nothing that was measured. Run `make bench`.\n",
    )
    document = asdict(training_part())
    del document["ratios"]
    (tmp_path / "training.json").write_text(json.dumps(document), "utf-8")
    result = CliRunner().invoke(report.main, arguments)
    assert result.exit_code == 2
    assert "training.json is not what a benchmark writes" in result.stderr


def test_the_report_writes_results_tables_and_pictures(tmp_path: Path) -> None:
    precisions = [
        {"name": "float32", "accuracy": 0.9, "latency": 9.0},
        {"name": "int8", "accuracy": 0.899, "latency": 4.0},
    ]
    write_part(tmp_path / "parts", inference_part())
    write_part(tmp_path / "parts", Part(name="precisions", ratios={}, measured={"precisions": precisions}))
    results = tmp_path / "results"
    result = CliRunner().invoke(report.main, ["--parts", str(tmp_path / "parts"), "--results", str(results)])
    assert result.exit_code == 0, result.stderr
    names = {report.JSON_FILE, report.TABLES_FILE, report.LATENCY_PICTURE, report.PRECISION_PICTURE}
    assert {file.name for file in results.iterdir()} == names
    for name in (report.LATENCY_PICTURE, report.PRECISION_PICTURE):
        assert (results / name).read_bytes().startswith(b"\x89PNG")
    text = (results / report.TABLES_FILE).read_text("utf-8")
    for line in (
        "| `fp32_full_1x16` | 2.00 | 1.90 … 2.10 | optimum-plain |",
        "| milliseconds | 1 × 16 | 8 × 16 |",
        "| Ferry | 2.00 | 2.00 |",
        "| fastest peer in sorted batches | – | 3.00 (Optimum, plain, sorted in batches of 4) |",
        "| Ferry | 90.9 | 83.6 | 4.56 |",
        "| Ferry | 3.00 | 200 |",
        "- OpenVINO: not in this plan",
    ):
        assert line in text.splitlines()


def test_a_report_that_can_not_be_made_leaves_the_old_results(tmp_path: Path) -> None:
    results = tmp_path / "results"
    results.mkdir()
    (results / report.JSON_FILE).write_text("old", "utf-8")
    write_part(tmp_path / "parts", training_part())
    write_part(tmp_path / "parts", training_part(name="again"))
    result = CliRunner().invoke(report.main, ["--parts", str(tmp_path / "parts"), "--results", str(results)])
    assert result.exit_code == 2
    assert [(file.name, file.read_text("utf-8")) for file in results.iterdir()] == [(report.JSON_FILE, "old")]
