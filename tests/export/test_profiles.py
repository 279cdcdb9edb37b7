"""Profiles: each file has its form, one function, a proof of its own, and the oldest runtime that it promises."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper

from export.contract import ONNX_METADATA_KEY
from export.model import CONFIG_FILE, model_limits
from export.node_names import all_nodes
from export.onnx_export import ONNX_FILE, read_onnx
from export.profiles import DEFAULT_PROFILE, PROFILES
from export.proof.cases import Case, build_grid
from export.proof.checks import Files, check_files
from export.rewrite.attention import FAINT
from export.rewrite.row_groups import GROUPS
from export.rewrite.uneven import UNEVEN
from pipeline import cli
from tests.export.proof.subjects import build_files, eager_model
from tests.oldest import FOLDER, answer
from tests.sabotage.tools import set_attribute

# What is written otherwise from profile to profile: fused attention, attention written out, and one that looks back.
SHAPES = {"sdpa": {}, "full": {"attention": "full"}, "causal": {"causal": True}}


@pytest.fixture(scope="module")
def files() -> dict[str, dict[str, bytes]]:
    return {name: build_files(profile=name, num_layers=2) for name in PROFILES}


def test_the_command_line_names_the_profiles_that_there_are() -> None:
    assert tuple(PROFILES) == cli.PROFILE_NAMES
    assert cli.DEFAULT_PROFILE == DEFAULT_PROFILE


@pytest.mark.parametrize("name", PROFILES)
def test_a_file_has_the_form_of_its_profile(files: dict[str, dict[str, bytes]], name: str) -> None:
    profile, model = PROFILES[name], read_onnx(files[name][ONNX_FILE])
    kinds = Counter(node.op_type for node in all_nodes(model.graph))
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", profile.opset)]
    assert model.ir_version == profile.ir_version
    # Two layers, each with an attention for even rows and one a group, and the head's own GELU.
    a_layer = 1 + GROUPS if UNEVEN in profile.rules else 1
    assert (kinds[profile.fused], kinds[profile.gelu]) == (2 * a_layer, 3)
    metadata = json.loads(next(entry.value for entry in model.metadata_props if entry.key == ONNX_METADATA_KEY))
    assert metadata["profile"] == name
    assert metadata["minimum_runtime"]["onnxruntime"] == profile.minimum_onnxruntime


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", PROFILES)
def test_every_check_accepts_the_file_of_every_profile(name: str, shape: str) -> None:
    made = build_files(profile=name, **SHAPES[shape])
    results = check_files(Files(made.__getitem__))
    assert [(check.name, check.problems, check.note) for check in results if check.problems or check.note] == []


def test_a_file_of_another_profile_than_it_says_is_refused(files: dict[str, dict[str, bytes]]) -> None:
    model = read_onnx(files["portable"][ONNX_FILE])
    told = read_onnx(files["cpu"][ONNX_FILE]).metadata_props
    del model.metadata_props[:]
    model.metadata_props.extend(told)
    planted = {**files["cpu"], ONNX_FILE: model.SerializeToString()}
    problems = {check.name: check.problems for check in check_files(Files(planted.__getitem__))}
    assert problems["opset and IR version"] == (
        "model.onnx must import opset 23 of ai.onnx and nothing else; got [('ai.onnx', 18)]",
        "model.onnx must be of IR version 10; got 8",
    )
    assert any("Softmax" in problem for problem in problems["fused attention"])
    assert problems["model.onnx is a fresh export"]


def test_a_file_of_no_profile_is_refused(files: dict[str, dict[str, bytes]]) -> None:
    model = read_onnx(files["cpu"][ONNX_FILE])
    (entry,) = (entry for entry in model.metadata_props if entry.key == ONNX_METADATA_KEY)
    entry.value = entry.value.replace('"profile":"cpu"', '"profile":"tpu"')
    planted = {**files["cpu"], ONNX_FILE: model.SerializeToString()}
    problems = {check.name: check.problems for check in check_files(Files(planted.__getitem__))}
    assert problems["opset and IR version"] == (
        "can't be checked: model.onnx must be of a profile of cpu, cuda, web, portable; it says 'tpu'",
    )


def factor(number: float, other: float) -> Callable[[onnx.ModelProto], None]:
    """Exchange a stored number for another."""

    def edit(model: onnx.ModelProto) -> None:
        (tensor,) = (
            tensor
            for tensor in model.graph.initializer
            if tensor.data_type == onnx.TensorProto.FLOAT and numpy_helper.to_array(tensor).tolist() == number
        )
        tensor.CopyFrom(numpy_helper.from_array(np.float32(other), tensor.name))

    return edit


def attribute(name: str, key: str, value: float) -> Callable[[onnx.ModelProto], None]:
    return lambda model: set_attribute(next(node for node in model.graph.node if node.name == name), key, value)


def exchange_keys_and_values(model: onnx.ModelProto) -> None:
    names = (f"encoder.blocks.0.attention.qkv/MatMul_{number}" for number in (1, 2))
    keys, values = (next(node for node in model.graph.node if node.name == name).input for name in names)
    keys[1], values[1] = values[1], keys[1]


# What is written otherwise in one profile: what changes there, and the check that says so.
FAULTS = {
    "cuda-product-times-a-number": (
        "cuda",
        attribute("encoder.blocks.0.attention.out/Gemm", "alpha", 1.0000001),
        "operators' attributes",
    ),
    "cuda-weight-not-turned": (
        "cuda",
        attribute("encoder.blocks.0.attention.out/Gemm", "transB", 0),
        "weights in their places",
    ),
    "portable-faint-is-loud": ("portable", factor(FAINT, -8.0), "numbers"),
    "portable-scale": ("portable", factor(float(np.float32(8**-0.5)), 0.25), "numbers"),
    "portable-half-of-gelu": ("portable", factor(0.5, 0.4), "numbers"),
    "portable-root-of-gelu": ("portable", factor(float(np.float32(2**0.5)), 1.5), "numbers"),
    "portable-keys-for-values": ("portable", exchange_keys_and_values, "attention"),
    "cpu-faint-is-loud": ("cpu", factor(FAINT, -8.0), "numbers"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_the_form_of_a_profile_is_named(files: dict[str, dict[str, bytes]], fault: str) -> None:
    profile, edit, check = FAULTS[fault]
    model = read_onnx(files[profile][ONNX_FILE])
    edit(model)
    planted = {**files[profile], ONNX_FILE: model.SerializeToString()}
    problems = {check.name: check.problems for check in check_files(Files(planted.__getitem__)) if check.problems}
    assert check in problems
    assert "model.onnx is a fresh export" in problems


def test_portable_files_hold_operators_of_opset_18_alone(files: dict[str, dict[str, bytes]]) -> None:
    for name in ("web", "portable"):
        for node in read_onnx(files[name][ONNX_FILE]).graph.node:
            assert node.domain == ""
            assert onnx.defs.get_schema(node.op_type, 18, "").since_version <= 18


@pytest.mark.parametrize("name", PROFILES)
def test_the_oldest_runtime_gives_the_answers_of_eager(
    files: dict[str, dict[str, bytes]], name: str, tmp_path: Path
) -> None:
    version = PROFILES[name].minimum_onnxruntime
    if not (FOLDER / version).is_dir():
        pytest.skip(f"ONNX Runtime {version} is not installed: `python -m tests.oldest`")
    cases = build_grid(model_limits(json.loads(files[name][CONFIG_FILE])))[::5]
    (tmp_path / ONNX_FILE).write_bytes(files[name][ONNX_FILE])
    np.savez(tmp_path / "batches.npz", **batches_of(cases))
    arguments = [str(tmp_path / file) for file in (ONNX_FILE, "batches.npz", "answers.npz")]
    environment = {**os.environ, "PYTHONPATH": str(FOLDER / version)}
    subprocess.run([sys.executable, answer.__file__, *arguments], env=environment, check=True, timeout=300)
    answers = np.load(tmp_path / "answers.npz")
    assert str(answers["version"]) == version
    eager = eager_model(files[name]).eval()
    for number, case in enumerate(cases):
        with torch.inference_mode():
            wanted = eager(torch.from_numpy(case.input_ids), torch.from_numpy(case.attention_mask)).numpy()
        # Logits near 10, in sums of another order: 5e-6 was seen.
        np.testing.assert_allclose(answers[f"logits{number}"], wanted, rtol=1e-5, atol=1e-5)


def batches_of(cases: list[Case]) -> dict[str, np.ndarray]:
    numbered = list(enumerate(cases))
    return {f"ids{number}": case.input_ids for number, case in numbered} | {
        f"mask{number}": case.attention_mask for number, case in numbered
    }
