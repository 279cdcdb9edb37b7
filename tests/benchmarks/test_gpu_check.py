"""The check of a GPU, tried on the CPU: what it proves, writes, refuses, and says where there is no GPU."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from benchmarks import gpu_check, gpu_models, gpu_proof, gpu_runtimes
from benchmarks.gpu_models import build, model_to_time, models_to_check
from benchmarks.gpu_proof import DeviceProof, prove_on_device
from benchmarks.gpu_runtimes import DeviceRuntime, load_on_device
from benchmarks.latency import Latency
from benchmarks.tolerance_models import Architecture, Files, replace_weights
from export.errors import FerryError
from export.model import TASKS, WEIGHTS_FILE, read_weights
from export.onnx_export import ONNX_FILE
from export.proof.placement import PROVIDERS, Placement
from export.proof.runtimes import BackendError
from export.torchscript import TORCHSCRIPT_FILE, load_torchscript
from models.attention import ATTENTIONS

Checked = tuple[Path, list[DeviceProof], list[Latency]]

SMALL = {"dim": 16, "num_heads": 2, "hidden_dim": 32, "num_layers": 1, "vocab_size": 30, "max_len": 7}
ON_DEVICE = [
    "eager on cpu",
    "eager-math on cpu",
    "eager-float16 on cpu",
    "eager-bfloat16 on cpu",
    "torchscript on cpu",
    "onnxruntime-off on cpu",
    "onnxruntime-basic on cpu",
    "onnxruntime-all on cpu",
]


@pytest.fixture(scope="module")
def small() -> Architecture:
    return gpu_models._describe("text-classification", **SMALL)


@pytest.fixture(scope="module")
def files(small: Architecture) -> Files:
    return build(small)


def shift_a_weight(files: Files) -> Files:
    weights = read_weights(files[WEIGHTS_FILE])
    name = next(name for name in weights if name.endswith("qkv.weight"))
    weights[name].view(-1)[0] += 0.1
    return {**files, ONNX_FILE: replace_weights(files[ONNX_FILE], weights)}


@pytest.fixture(scope="module")
def checked(small: Architecture, files: Files, tmp_path_factory: pytest.TempPathFactory) -> Checked:
    """The whole check of one model on the CPU, which takes the files that are there instead of exporting."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu_check, "build", lambda *_: files)
        return gpu_check.check_device(
            "cpu",
            tmp_path_factory.mktemp("results"),
            models=[small],
            timed=small,
            shapes=[(2, 5, 0.5)],
            warm_up=1,
            runs=3,
            show=False,
        )


@pytest.fixture(scope="module")
def refuted(small: Architecture, files: Files) -> DeviceProof:
    return prove_on_device(small, shift_a_weight(files), "cpu")


def test_every_mechanism_and_task_is_checked() -> None:
    checked = {(model.config["encoder"]["attention"], model.config["task"]) for model in models_to_check()}
    assert checked == {(attention, task) for attention in ATTENTIONS for task in TASKS}
    assert any(model.config["encoder"]["causal"] for model in models_to_check())
    assert model_to_time().config["encoder"]["max_len"] >= max(length for _, length, _ in gpu_check.SHAPES)


def test_the_whole_check_passes_and_writes_what_it_found(checked: Checked) -> None:
    file, (proof,), latencies = checked
    assert proof.failures == []
    document = json.loads(file.read_text("utf-8"))
    assert file.name == "gpu-cpu.json"
    assert document["passed"] is True
    assert document["settings"]["float32_matmul_precision"] == "highest"
    (model,) = document["models"]
    assert set(model["backends"]) == {"eager", "eager-float16", "eager-bfloat16", *ON_DEVICE}
    assert set(model["tolerances"]) == {"float32", "float16", "bfloat16"}
    for backend in model["backends"].values():
        assert 0 < backend["max_error"] <= backend["limit"]
        assert set(backend["by_mask"]) >= {"empty-row", "all-empty", "holes", "left"}
        assert max(error for error in backend["by_mask"].values()) <= backend["max_error"]
    assert {law["backend"] for law in model["invariances"]} == set(ON_DEVICE)
    assert set(model["placements"]) == {name for name in ON_DEVICE if name.startswith("onnxruntime")}
    assert all(placement["float_nodes"] > 20 for placement in model["placements"].values())
    assert {row["candidate"] for row in document["latency"]["rows"]} == {row.candidate for row in latencies}
    assert all(0 < row.p10_ms <= row.median_ms <= row.p90_ms and row.runs == 3 for row in latencies)
    assert str(file.parent) not in file.read_text("utf-8")
    assert "onnxruntime-all on cpu" in gpu_proof.describe_proofs([proof])
    assert "2 × 5" in gpu_check.describe_latencies(latencies)


def test_half_precisions_are_held_to_limits_of_their_own(checked: Checked) -> None:
    tolerances = checked[1][0].parity.tolerances
    assert tolerances["float32"].limit < tolerances["float16"].limit / 100 < tolerances["bfloat16"].limit / 400


def test_a_file_with_another_weight_fails_where_it_is_wrong(refuted: DeviceProof) -> None:
    assert {failure.backend for failure in refuted.failures} == {name for name in ON_DEVICE if name.startswith("onnx")}


def test_a_node_that_ran_elsewhere_is_a_failure(checked: Checked) -> None:
    fallen = Placement(
        provider=PROVIDERS["cuda"], options={}, nodes=1, float_nodes=1, integer_nodes=(), faults=("MatMul ran on CPU",)
    )
    broken = replace(checked[1][0], placements={"onnxruntime-all on cuda": fallen})
    assert [(failure.where, failure.reason) for failure in broken.failures] == [("placement", "MatMul ran on CPU")]
    assert broken.to_json()["placements"]["onnxruntime-all on cuda"]["faults"] == ["MatMul ran on CPU"]


def test_what_tf32_does_is_recorded_and_is_no_failure(checked: Checked) -> None:
    control = gpu_proof.Tf32Control(max_error=1e-3, limit=1e-5)
    recorded = replace(checked[1][0], tf32=control)
    assert recorded.failures == []
    assert recorded.to_json()["tf32_on"] == {"max_error": 1e-3, "limit": 1e-5, "refused": True}


def test_a_module_that_stays_behind_is_refused(files: Files) -> None:
    scripted, _ = load_torchscript(files[TORCHSCRIPT_FILE])
    with pytest.raises(BackendError, match="its tensors are on no device"):
        DeviceRuntime("frozen", torch.jit.freeze(scripted), "cpu")


def test_answers_of_every_precision_come_back_as_float32(files: Files) -> None:
    ids = np.ones((2, 3), np.int64)
    for runtime in load_on_device(files.__getitem__, "cpu"):
        assert runtime.run(ids, ids).dtype == np.float32
    with pytest.raises(BackendError):
        runtime.run(np.full((1, 2), 10**6), np.ones((1, 2), np.int64))


def test_a_damaged_file_is_one_sentence(files: Files) -> None:
    with pytest.raises(FerryError, match=r"model\.pt is damaged"):
        load_on_device({**files, TORCHSCRIPT_FILE: b"no archive"}.__getitem__, "cpu")


def pretend_a_gpu(monkeypatch: pytest.MonkeyPatch, missing: list[str]) -> None:
    monkeypatch.setattr(gpu_check, "missing_for_cuda", lambda: missing)
    monkeypatch.setattr(gpu_check, "missing_for_torch", list)


def test_without_a_gpu_each_missing_part_has_its_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pretend_a_gpu(monkeypatch, ["there is no NVIDIA driver (libcuda.so.1 can't be loaded)"])
    monkeypatch.setattr(gpu_check, "missing_for_torch", lambda: ["torch 2 was built without CUDA"])
    result = CliRunner().invoke(gpu_check.main, ["--results", str(tmp_path)])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        "gpu-check needs an NVIDIA GPU that PyTorch and ONNX Runtime can use; here is what is missing:",
        "  there is no NVIDIA driver (libcuda.so.1 can't be loaded).",
        "  torch 2 was built without CUDA.",
    ]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("built_for", "found", "sentence"),
    [
        (None, False, "was built without CUDA"),
        ("13.0", False, "finds no device that its CUDA 13.0"),
        ("13.0", True, ""),
    ],
)
def test_what_pytorch_lacks_is_named(
    monkeypatch: pytest.MonkeyPatch, built_for: str | None, found: bool, sentence: str
) -> None:
    monkeypatch.setattr(torch.version, "cuda", built_for)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: found)
    missing = gpu_runtimes.missing_for_torch()
    assert len(missing) == bool(sentence)
    assert sentence in "".join(missing)


@pytest.mark.parametrize(("broken", "code"), [(False, 0), (True, 1)])
def test_the_command_ends_with_what_was_found(
    checked: Checked, refuted: DeviceProof, monkeypatch: pytest.MonkeyPatch, broken: bool, code: int
) -> None:
    pretend_a_gpu(monkeypatch, [])
    file, proofs, latencies = checked

    def on_the_cpu(device: str, _: Path, **__: Any) -> Checked:
        assert device == "cuda"
        return file, [refuted] if broken else proofs, latencies

    monkeypatch.setattr(gpu_check, "check_device", on_the_cpu)
    result = CliRunner().invoke(gpu_check.main, [])
    assert result.exit_code == code, result.output
    last = result.output.splitlines()[-1]
    assert ("failures;" in last) if broken else last.startswith("gpu-check: passed; ")


def test_help_says_what_it_does_and_how_it_ends() -> None:
    result = CliRunner().invoke(gpu_check.main, ["--help"])
    assert result.exit_code == 0
    assert "Exit codes: 0 all holds; 1 something does not" in result.output
