"""Counterexamples: small, with a program that runs as it stands, and with the guilty layer."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from torch import Tensor, nn

from export.capture import capture
from export.contract import LOGITS, Limits
from export.model import CONFIG_FILE, WEIGHTS_FILE, model_limits
from export.onnx_export import ONNX_FILE
from export.proof.cases import build_grid
from export.proof.explain import Counterexample, describe, explain_failures
from export.proof.invariance import check_invariance
from export.proof.parity import Failure, check_parity
from export.proof.reproduction import reproduce
from export.proof.runtimes import EAGER, load_reference, open_runtime
from export.pt2 import PT2_FILE, export_pt2
from export.torchscript import TORCHSCRIPT_FILE
from tests.export.proof.subjects import eager_model, metadata_of
from tests.export.proof.test_sabotage import (
    FrozenBatch,
    FrozenLength,
    IgnoresMask,
    SeesCompany,
    frozen_axis_onnx,
    gelu_by_tanh_onnx,
    nan_for_empty_rows_onnx,
    scaled_weight_onnx,
    script,
    softmax_onnx,
    swapped_inputs_onnx,
)

Files = dict[str, bytes]
ONNX, TORCHSCRIPT = "onnxruntime-cpu-all", "torchscript"


def explain(files: Files, *backends: str) -> tuple[Counterexample, ...]:
    """Prove files on some backends and explain what fails."""
    read = files.__getitem__
    limits = model_limits(json.loads(files[CONFIG_FILE]))
    reference = load_reference(read)
    runtimes = [open_runtime(name, read) for name in (EAGER, *backends)]
    parity = check_parity(reference, runtimes, build_grid(limits), limits)
    laws = check_invariance(runtimes, limits, parity.tolerances)
    failures = [failure for part in (*parity.backends, *laws) for failure in part.failures]
    return explain_failures(read, reference, runtimes, failures, parity.tolerances, limits)


def wrapped(wrapper: Callable[[nn.Module], nn.Module]) -> Callable[[Files], None]:
    return lambda files: script(files, wrapper(eager_model(files)).eval())


# The backend, what is done to its file, the smallest failing shape, and the module and operator that are named.
FAULTS: dict[str, tuple[str, Callable[[Files], None], tuple[int, int], str, str]] = {
    "onnx-weight": (ONNX, scaled_weight_onnx, (1, 1), "encoder.blocks.0.feed_forward.up", "Add"),
    "onnx-gelu": (ONNX, gelu_by_tanh_onnx, (1, 1), "encoder.blocks.0.feed_forward.activation", "Gelu"),
    "onnx-softmax": (ONNX, softmax_onnx, (1, 1), "logits", "Softmax"),
    "onnx-nan": (ONNX, nan_for_empty_rows_onnx, (1, 1), "logits", "Div"),
    "onnx-inputs-swapped": (ONNX, swapped_inputs_onnx, (1, 1), "encoder", "Gather"),
    "torchscript-length": (TORCHSCRIPT, wrapped(FrozenLength), (1, 12), "encoder", "pack"),
    "torchscript-batch": (TORCHSCRIPT, wrapped(FrozenBatch), (6, 1), "encoder", "pack"),
    "torchscript-mask": (TORCHSCRIPT, wrapped(IgnoresMask), (1, 1), "pool", "aten::cat"),
    "torchscript-company": (TORCHSCRIPT, wrapped(SeesCompany), (1, 1), "logits", "aten::mul"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_explained(good: Files, name: str) -> None:
    backend, plant, shape, module, operator = FAULTS[name]
    files = dict(good)
    plant(files)
    (example,) = explain(files, backend)
    assert example.backend == backend
    assert example.smallest
    assert example.case.input_ids.shape == shape
    assert example.culprit is not None
    assert (example.culprit.module, example.culprit.operator) == (module, operator)
    text = describe(example)
    assert text.startswith(f"{backend}: {example.reason}\n  the smallest failing input: batch {shape[0]} x sequence")
    assert f"\n  first guilty layer: {module}, {operator}: " in text
    assert text.endswith(example.reproduction)


def run(program: str, folder: Path, files: Files, names: Sequence[str]) -> str:
    """Run a program in a folder that holds these files and nothing else."""
    for name in names:
        (folder / name).write_bytes(files[name])
    (folder / "reproduce.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "reproduce.py"], cwd=folder, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def printed(output: str, name: str) -> list[list[float]]:
    line = next(line for line in output.splitlines() if line.startswith(name))
    values: list[list[float]] = json.loads(line.removeprefix(name))
    return values


@pytest.fixture(scope="module")
def with_pt2(good: Files) -> Files:
    limits = model_limits(json.loads(good[CONFIG_FILE]))
    return {**good, PT2_FILE: export_pt2(capture(eager_model(good), limits), metadata_of(good))}


@pytest.mark.parametrize(
    ("backend", "names"),
    [
        ("onnxruntime-cpu-off", [ONNX_FILE]),
        ("onnxruntime-cpu-all-2-threads", [ONNX_FILE]),
        ("onnx-reference", [ONNX_FILE]),
        ("torchscript", [TORCHSCRIPT_FILE]),
        ("torchscript-frozen", [TORCHSCRIPT_FILE]),
        ("pt2", [PT2_FILE]),
        ("eager", [CONFIG_FILE, WEIGHTS_FILE]),
        ("eager-math", [CONFIG_FILE, WEIGHTS_FILE]),
    ],
)
def test_a_program_runs_as_it_stands_beside_the_file_alone(
    with_pt2: Files, backend: str, names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if backend.startswith("eager"):
        monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    else:
        monkeypatch.delenv("PYTHONPATH", raising=False)
    read = with_pt2.__getitem__
    runtime = open_runtime(backend, read)
    case = next(case for case in build_grid(Limits(max_length=19, vocab_size=40)) if case.name == "B2-T7-holes")
    expected = load_reference(read).run(case.input_ids, case.attention_mask)
    output = run(reproduce(runtime, case, expected, 1e-5), tmp_path, with_pt2, names)
    assert printed(output, "expected") == expected.tolist()
    np.testing.assert_array_equal(
        np.float32(printed(output, "actual")), runtime.run(case.input_ids, case.attention_mask)
    )
    assert re.search(r"^largest error \d\.\d+e-\d\d allowed 1e-05$", output, re.MULTILINE)


def test_a_program_tells_of_another_shape(good: Files, tmp_path: Path) -> None:
    files = dict(good)
    script(files, FrozenBatch(eager_model(files)).eval())
    (example,) = explain(files, TORCHSCRIPT)
    output = run(example.reproduction, tmp_path, files, [TORCHSCRIPT_FILE])
    assert output.endswith("shape (5, 5) wanted (6, 5)\n")


def test_a_program_ends_in_the_error_of_a_backend_that_gives_no_answer(good: Files, tmp_path: Path) -> None:
    files = dict(good)
    frozen_axis_onnx(files)
    (example,) = explain(files, ONNX)
    assert example.culprit is None
    assert "\n  first guilty layer: not found, no value that could be looked at lies beyond" in describe(example)
    (tmp_path / ONNX_FILE).write_bytes(files[ONNX_FILE])
    done = subprocess.run(
        [sys.executable, "-c", example.reproduction], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1
    assert done.stderr.strip().endswith(example.reason)


class LeansOnCompany(nn.Module):
    """Errs a little, in one direction alone and in the other in company: each is right, and both together are not."""

    def __init__(self, model: nn.Module, amount: float) -> None:
        super().__init__()
        self.model = model
        self.amount = amount

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.model(input_ids, attention_mask) + (self.amount if len(input_ids) > 1 else -self.amount)


def test_a_law_broken_by_right_answers_is_explained_by_a_batch_and_its_retelling(good: Files, tmp_path: Path) -> None:
    files = dict(good)
    limits = model_limits(json.loads(good[CONFIG_FILE]))
    reference, eager = load_reference(good.__getitem__), open_runtime(EAGER, good.__getitem__)
    limit = check_parity(reference, [eager], build_grid(limits), limits).tolerance.limit
    script(files, LeansOnCompany(eager_model(files), 0.6 * limit).eval())
    (example,) = explain(files, TORCHSCRIPT)
    assert example.reason.startswith("company, row 0 alone: error ")
    assert example.origin == "B3-T7-ones, company"
    assert example.case.input_ids.shape == (2, 1)
    # Each answer is right, or nearly so on a small input; what the file does to them stands behind the last module.
    assert example.culprit is None or example.culprit.module == LOGITS
    output = run(example.reproduction, tmp_path, files, [TORCHSCRIPT_FILE])
    expected, actual = np.array(printed(output, "expected")), np.array(printed(output, "actual"))
    assert np.abs(expected - actual).max() == pytest.approx(1.2 * limit, rel=0.1)


def test_a_failure_that_does_not_fail_again_is_not_explained(good: Files) -> None:
    read = good.__getitem__
    limits = model_limits(json.loads(good[CONFIG_FILE]))
    reference, runtimes = load_reference(read), [open_runtime(name, read) for name in (EAGER, ONNX)]
    cases = build_grid(limits)[:3]
    tolerances = check_parity(reference, runtimes, cases, limits).tolerances
    failures = [
        Failure(backend=ONNX, where="search, on scaled weights", reason="error", case=cases[0]),
        Failure(backend=ONNX, where="placement", reason="has no input"),
    ]
    assert explain_failures(read, reference, runtimes, failures, tolerances, limits) == ()


def test_backends_of_one_file_share_their_smallest_input(good: Files) -> None:
    files = dict(good)
    scaled_weight_onnx(files)
    examples = explain(files, "onnxruntime-cpu-off", "onnxruntime-cpu-all")
    assert [example.backend for example in examples] == ["onnxruntime-cpu-off", "onnxruntime-cpu-all"]
    assert {example.case.input_ids.tobytes() for example in examples} == {np.zeros((1, 1), np.int64).tobytes()}
