"""What runs beside `forward` in model.pt is refused, and two honest exports are one."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from torch import nn

from export.model import CONFIG_FILE, WEIGHTS_FILE
from export.produce import ROOT
from export.proof.checks.files import Files
from export.proof.checks.script_records import check_code_beside_forward, check_script_records
from export.torchscript import TORCHSCRIPT_FILE, export_torchscript
from models.config import EncoderConfig
from models.heads import TextClassifier, TokenTagger
from tests.export.proof.subjects import ENCODER, LABELS, eager_model
from tests.sabotage.faults.beside_forward import add_hook, add_method, add_pre_hook, add_states
from tests.sabotage.tools import export_twin


def plant(files: dict[str, bytes], change: Callable[[nn.Module], object]) -> Files:
    changed = dict(files)
    export_twin(changed, TORCHSCRIPT_FILE, change)
    return Files(changed.__getitem__)


def test_another_honest_export_is_the_same_record_by_record(good: dict[str, bytes]) -> None:
    files = plant(good, lambda _: None)
    assert check_code_beside_forward(files) == []
    assert check_script_records(files) == []


def test_what_a_process_scripted_before_leaves_no_trace(good: dict[str, bytes]) -> None:
    first = export_torchscript(eager_model(good), {})
    encoder = EncoderConfig(**{**ENCODER, "position": "none"})
    # Other models with the same parts, which call other methods and functions of them.
    export_torchscript(TextClassifier(encoder, pooling="mean", num_labels=len(LABELS)).eval(), {})
    export_torchscript(TokenTagger(replace(encoder, attention="full"), num_labels=3).eval(), {})
    assert export_torchscript(eager_model(good), {}) == first


def test_other_string_hashes_make_no_other_records(tmp_path: Path, good: dict[str, bytes]) -> None:
    (tmp_path / "config.json").write_bytes(good[CONFIG_FILE])
    (tmp_path / "model.safetensors").write_bytes(good[WEIGHTS_FILE])
    program = """
import json, pathlib, sys
from export.model import restore_model
from export.torchscript import export_torchscript
folder = pathlib.Path(sys.argv[1])
model = restore_model(json.loads((folder / "config.json").read_bytes()), (folder / "model.safetensors").read_bytes())
(folder / "model.pt").write_bytes(export_torchscript(model, {}))
"""
    scripts = []
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-c", program, tmp_path], check=True, env=environment, cwd=ROOT)
        scripts.append((tmp_path / TORCHSCRIPT_FILE).read_bytes())
    assert scripts[0] != scripts[1]
    for script in scripts:
        assert check_script_records(Files({**good, TORCHSCRIPT_FILE: script}.__getitem__)) == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (add_hook, "__forward_hooks__"),
        (add_pre_hook, "__forward_pre_hooks__"),
        (add_states, "__setstate__"),
    ],
    ids=["hook", "pre-hook", "setstate"],
)
def test_code_that_runs_by_itself_is_refused(
    good: dict[str, bytes], change: Callable[[nn.Module], object], told: str
) -> None:
    files = plant(good, change)
    assert f"{TORCHSCRIPT_FILE} has code that runs beside forward: {told}" in check_code_beside_forward(files)
    assert check_script_records(files) != []


def test_a_method_that_nothing_calls_is_refused(good: dict[str, bytes]) -> None:
    files = plant(good, add_method)
    assert any("is not that of a fresh export" in problem for problem in check_script_records(files))
