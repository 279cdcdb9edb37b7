"""The numeric half of a check, on artifacts whose every hash was recomputed."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from export.artifact.check import check_artifact, judge
from export.artifact.layout import ArtifactError
from tests.export.artifact.forge import change_json, change_onnx_weight, rebind


def numeric(folder: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for finding in judge(folder).findings:
        if finding.kind == "numeric":
            found.setdefault(finding.check, []).append(finding.problem)
    return found


def test_nothing_is_found_in_a_good_artifact_told_anew(broken: Path) -> None:
    rebind(broken)
    assert judge(broken).findings == []


def test_one_changed_weight_moves_the_function(broken: Path) -> None:
    change_onnx_weight(broken, 1.5)
    found = numeric(broken)
    assert found.keys() >= {"goldens", "parity"}
    (problem,) = found["parity"]
    assert problem.startswith("onnxruntime-cpu-all fails in ")
    assert ", first in B1-T1-ones: error " in problem
    # And the structural half names it.
    assert any("has other values for the weight" in finding.problem for finding in judge(broken).findings)


def test_models_of_another_run_move_both_backends(broken: Path, other_artifact: Path) -> None:
    for name in ("model.onnx", "model.pt"):
        shutil.copy(other_artifact / name, broken / name)
    rebind(broken)
    moved = [problem.partition(" fails in ")[0] for problem in numeric(broken)["parity"]]
    assert moved == ["onnxruntime-cpu-all", "torchscript"]


def test_report_of_another_run_is_refused_by_its_figures(broken: Path, other_artifact: Path) -> None:
    """Every hash in it is made to fit; what it tells of the logits does not."""
    shutil.copy(other_artifact / "verification.json", broken / "verification.json")
    rebind(broken)
    assert any("for the largest logit of the grid; in float64 it is" in text for text in numeric(broken)["figures"])


@pytest.mark.parametrize(
    ("key", "factor", "accepted"),
    [
        ("largest_logit", 1.004, True),
        ("largest_logit", 1.006, False),
        ("largest_logit", 0.99, False),
        ("limit", 3.5, True),
        ("limit", 0.3, True),
        ("limit", 10.0, False),
        ("limit", 0.1, False),
        ("limit", float("nan"), False),
    ],
)
def test_figures_are_held_to_the_stated_rounding(broken: Path, key: str, factor: float, accepted: bool) -> None:
    exact = json.loads((broken / "verification.json").read_text())["parity"]["tolerance"][key]

    def change(verification: Any) -> None:
        verification["parity"]["tolerance"][key] = exact * factor

    change_json(broken, "verification.json", change)
    told = {"largest_logit": "for the largest logit of the grid", "limit": "tells a limit of"}[key]
    problems = numeric(broken).get("figures", [])
    assert any(told in problem for problem in problems) == (not accepted), problems


def test_report_of_a_part_of_the_grid_is_refused(broken: Path) -> None:
    change_json(broken, "verification.json", lambda verification: verification["parity"]["cases"].pop())
    (problem,) = numeric(broken)["figures"]
    assert problem.startswith("verification.json tells of other cases than the ")


def test_tolerance_that_lets_everything_pass_is_refused(broken: Path) -> None:
    """In goldens.json and verification.json alike, so that they agree with each other."""

    def widen(verification: Any) -> None:
        verification["test_split"]["tolerance"]["limit"] = 1e9

    change_json(broken, "verification.json", widen)
    change_json(broken, "goldens.json", lambda goldens: goldens["tolerance"].update(logits=1e9))
    assert "goldens.json has the tolerance 1e+09; no sound verification gives above" in numeric(broken)["figures"][0]
    change_json(broken, "goldens.json", lambda goldens: goldens["tolerance"].update(probabilities=1.0))
    with pytest.raises(ArtifactError, match=r"goldens\.json allows other probabilities than 0\.0001"):
        check_artifact(broken)


def test_swapped_labels_are_seen_in_the_answers(broken: Path) -> None:
    def swap(goldens: Any) -> None:
        for text in goldens["texts"]:
            text["label"] = "another" if text["label"] else text["label"]

    change_json(broken, "goldens.json", swap)
    problems = numeric(broken)["goldens"]
    assert any("wanted 'another'" in problem for problem in problems)


def test_model_that_can_not_be_loaded_is_told_once(broken: Path) -> None:
    (broken / "model.onnx").write_bytes(b"none")
    rebind(broken)
    assert any(problem.startswith("onnxruntime-cpu-all can't load its file: ") for problem in numeric(broken)["parity"])


def test_weights_that_make_no_model_are_told(broken: Path) -> None:
    (broken / "model.safetensors").write_bytes(b"none")
    rebind(broken)
    assert any("do not make a model that runs" in problem for problem in numeric(broken)["parity"])
