"""The tolerance study: what it measures, how it goes on, and that the code says what the committed result says."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from benchmarks import tolerance, tolerance_models, tolerance_study
from benchmarks.results import RESULTS
from benchmarks.tolerance import RESULT_FILE, read_measurements, render, study
from benchmarks.tolerance_models import AXES, WEIGHTS, Architecture, build_files, draw_architectures, replace_weights
from benchmarks.tolerance_picture import draw_ratios
from benchmarks.tolerance_study import FAULTS, STUDIED, Measurement, measure_architecture, summarise
from export.contract import TEXT_CLASSIFICATION
from export.errors import FerryError
from export.model import describe_model, restore_model
from export.onnx_export import ONNX_FILE
from export.proof import tolerance as constants
from models.config import EncoderConfig


@pytest.fixture(scope="module")
def tiny() -> Architecture:
    encoder = EncoderConfig(vocab_size=20, max_len=7, dim=16, num_layers=1, num_heads=2, hidden_dim=32)
    config = describe_model(TEXT_CLASSIFICATION, encoder, pooling="mean", head="linear", labels=["a", "b"])
    return Architecture(seed=0, config=config)


def made_up(**changes: Any) -> Measurement:
    """Return a measurement whose limit is 1: 4 · 0.2 + 4 · 2⁻²³ · 0.05 · 2²³."""
    measurement = Measurement(
        model="m",
        weights="fresh",
        eager_error=0.2,
        largest_logit=0.05 * 2**23,
        backends={"torchscript": 0.2, "onnx-reference": 0.1},
        faults=dict.fromkeys(FAULTS, 3.0),
    )
    return replace(measurement, **changes)


def test_the_committed_result_is_what_its_measurements_say() -> None:
    result = json.loads((RESULTS / RESULT_FILE).read_text("utf-8"))
    measurements = read_measurements(RESULTS / RESULT_FILE)
    assert result["summary"] == summarise(measurements)
    assert result["summary"]["largest_ratio"] < 1
    assert result["summary"]["eager_to_its_limit"]["max"] < 1
    assert len(measurements) >= 200
    assert set(measurements[0].backends) == set(STUDIED)
    assert {measurement.weights for measurement in measurements} == set(WEIGHTS)
    assert not re.search(r"/(work|tmp|home|root|usr)\b", (RESULTS / RESULT_FILE).read_text("utf-8"))


def test_the_constants_in_force_are_among_those_compared_and_refuse_no_good_model() -> None:
    rows = json.loads((RESULTS / RESULT_FILE).read_text("utf-8"))["summary"]["constants"]
    (row,) = (
        row for row in rows if (row["factor"], row["floor"]) == (constants.ERROR_FACTOR, constants.FLOOR_ROUNDINGS)
    )
    assert row["good_models_refused"] == 0


def test_the_code_says_what_the_committed_result_says() -> None:
    summary = json.loads((RESULTS / RESULT_FILE).read_text("utf-8"))["summary"]
    text = " ".join(str(constants.__doc__).split())
    readme = (RESULTS.parents[1] / "README.md").read_text("utf-8")
    assert f"{summary['configurations']} models" in text
    assert f"at most {summary['largest_ratio']:.2f} of the limit" in text
    assert f"at most at {summary['eager_to_its_limit']['max']:.2f} of its own limit" in text
    constants_of_3 = next(row for row in summary["constants"] if (row["factor"], row["floor"]) == (3, 4))
    assert f"with a factor of 3 that would have been {constants_of_3['largest_ratio']:.2f}" in text
    largest = max(row["to_eager"]["max"] for row in summary["backends"].values())
    assert f"a maximum of {largest:.2f}" in text
    half = summary["faults"]["weights rounded to half"]["to_limit"]["min"]
    assert f"measured on {summary['configurations']} models: correct backends stand at" in readme
    assert f"at {summary['largest_ratio']:.2f} of the limit at most" in readme
    assert f"at {half:.0f} times the limit at least" in readme
    for name, row in summary["faults"].items():
        assert f"{name} {row['to_limit']['median']:.3g} ({100 * row['beyond_limit']:.0f} %)" in text


def test_every_value_of_every_axis_is_drawn() -> None:
    drawn = draw_architectures(tolerance.ARCHITECTURES)
    encoders = [architecture.config["encoder"] for architecture in drawn]
    for axis, key in (("attention", "attention"), ("norm", "norm"), ("dim", "dim"), ("layers", "num_layers")):
        assert {encoder[key] for encoder in encoders} == set(AXES[axis])
    assert {len(architecture.config["id2label"]) for architecture in drawn} == set(AXES["labels"])
    assert {encoder["position"] for encoder in encoders} == set(AXES["position"])
    assert len({architecture.name for architecture in drawn}) > 0.9 * len(drawn)
    assert draw_architectures(5) == draw_architectures(5)


def test_one_architecture_is_measured_on_every_backend(tiny: Architecture, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = {kind: WEIGHTS[kind] for kind in ("spread", "fresh")}
    monkeypatch.setattr(tolerance_models, "WEIGHTS", kinds)
    measurements = list(measure_architecture(tiny))
    assert [measurement.weights for measurement in measurements] == list(kinds)
    for measurement in measurements:
        assert list(measurement.backends) == list(STUDIED)
        assert all(0 < error < measurement.tolerance.limit for error in measurement.backends.values())
        assert set(measurement.faults) == set(FAULTS)
        assert measurement.faults["weights rounded to half"] > measurement.tolerance.limit
    # The second has other weights in the first one's graph.
    assert measurements[0].eager_error != measurements[1].eager_error


def test_answers_that_are_not_finite_end_the_study() -> None:
    with pytest.raises(FerryError, match="torchscript gives values that are not finite"):
        tolerance_study._error([np.array([np.nan])], [np.array([1.0])], "torchscript")


def test_training_moves_every_weight_and_leaves_the_model_ready(tiny: Architecture) -> None:
    model = tolerance_models.build_model(tiny.config)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    WEIGHTS["trained"](model, tiny, torch.Generator().manual_seed(0))
    assert not model.training
    after = dict(model.named_parameters())
    assert all(not torch.equal(before[name], weight) for name, weight in after.items())


def test_a_graph_without_the_weights_is_refused(tiny: Architecture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tolerance_models, "WEIGHTS", {"spread": WEIGHTS["spread"]})
    ((_, files),) = build_files(tiny)
    with pytest.raises(FerryError, match=r"does not hold nowhere \(2,\)"):
        replace_weights(files[ONNX_FILE], {"nowhere": torch.zeros(2)})
    with pytest.raises(FerryError, match=r"head\.1\.weight \(3, 16\)"):
        replace_weights(files[ONNX_FILE], {"head.1.weight": torch.zeros(3, 16)})


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_changes_the_model_and_only_where_there_is_something_to_change(
    name: str, tiny: Architecture
) -> None:
    model = tolerance_models.build_model(tiny.config).eval()
    weights = tolerance_models.serialise_weights(model)
    ids = torch.arange(14).reshape(2, 7)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1)
        before = model(ids, torch.ones_like(ids))
        faulty = FAULTS[name](model, torch.Generator().manual_seed(3))
        assert faulty is not None
        assert not torch.equal(before, faulty(ids, torch.ones_like(ids)))
    relu = {**tiny.config, "encoder": {**tiny.config["encoder"], "activation": "relu"}}
    if name == "GELU by tanh":
        assert FAULTS[name](restore_model(relu, weights), torch.Generator()) is None


def test_ratios_are_taken_to_the_limit_and_to_eager() -> None:
    summary = summarise([made_up(), made_up(backends={"torchscript": 0.8, "onnx-reference": 0.1}, faults={})])
    assert summary["configurations"] == 2
    assert summary["largest_ratio"] == 0.8
    assert summary["backends"]["torchscript"]["to_limit"]["max"] == 0.8
    assert summary["backends"]["torchscript"]["to_eager"] == summary["backends"]["torchscript"]["to_eager"] | {
        "min": 1,
        "max": 4,
    }
    assert summary["faults"]["GELU by tanh"]["models"] == 1
    assert summary["faults"]["GELU by tanh"]["beyond_limit"] == 1.0


def test_other_constants_refuse_what_they_would_refuse() -> None:
    summary = summarise([made_up(), made_up(backends={"torchscript": 0.8, "onnx-reference": 0.1})])
    rows = {(row["factor"], row["floor"]): row for row in summary["constants"]}
    assert rows[4, 4]["largest_ratio"] == 0.8
    assert rows[4, 4]["good_models_refused"] == 0
    assert rows[2, 0]["largest_ratio"] == 2.0
    assert rows[2, 0]["good_models_refused"] == 1
    assert rows[8, 8]["faults_refused"]["GELU by tanh"] == 1.0


def test_an_interrupted_study_goes_on_and_a_torn_line_is_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[str] = []

    def measure(architecture: Architecture) -> list[Measurement]:
        if len(measured) == 2 and not resumed:
            raise KeyboardInterrupt
        measured.append(architecture.name)
        return [made_up(model=architecture.name)]

    monkeypatch.setattr(tolerance, "measure_architecture", measure)
    resumed = False
    with pytest.raises(KeyboardInterrupt):
        study(3, unfinished=tmp_path, show=False)
    (file,) = tmp_path.iterdir()
    with file.open("a") as lines:
        lines.write('[{"torn')
    resumed = True
    measurements = study(3, unfinished=tmp_path, show=False)
    names = [architecture.name for architecture in draw_architectures(3)]
    assert [measurement.model for measurement in measurements] == names
    assert measured == names


def test_the_command_writes_both_files_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tolerance, "measure_architecture", lambda architecture: [made_up(model=architecture.name)])
    monkeypatch.setattr(tolerance, "_UNFINISHED", tmp_path / "build")
    result = CliRunner().invoke(tolerance.main, ["--architectures", "2", "--results", str(tmp_path / "results")])
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("tolerance: 2 models, largest ratio of a backend 0.2\n")
    assert sorted(path.name for path in (tmp_path / "results").iterdir()) == ["tolerance.json", "tolerance.png"]
    assert len(read_measurements(tmp_path / "results" / RESULT_FILE)) == 2


def test_result_and_picture_are_functions_of_the_measurements(tmp_path: Path) -> None:
    measurements = [made_up(), made_up(backends={"torchscript": 0.3, "onnx-reference": 1e-9})]
    assert json.loads(render(measurements))["summary"]["configurations"] == 2
    assert render(measurements) == render(measurements)
    for name in ("a.png", "b.png"):
        draw_ratios(tmp_path / name, measurements)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
