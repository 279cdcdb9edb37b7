"""Each precision is held to what it can keep: half to eager half, int8 to the task and the invariances."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from export.onnx_export import ONNX_FILE
from export.proof.checks import Files, precisions
from export.proof.invariance import LAWS
from export.proof.precision import FLOAT16, FLOAT32, INT8
from export.proof.prove import Proof, prove
from export.proof.report.document import FILES
from export.proof.runtimes import EAGER, EAGER_HALF, ONNX_FP16_FILE, ONNX_INT8_FILE, select_backends
from export.quantization import FORMS, quantize, requantize, write
from export.quantization.linears import find_linears
from tests.export.proof.precisions import dynamic_int8_file, half_file
from tests.export.proof.subjects import make_batches
from tests.export.proof.test_sabotage import edit_tensor
from tests.sabotage.tools import edit_onnx

HALF = "onnxruntime-cpu-all-float16"
ONNXRUNTIME = "onnxruntime-cpu-all"
QUANTISED = "onnxruntime-cpu-all-int8"


def prove_with(files: dict[str, bytes], names: set[str], *, int8_loss: float | None = None) -> Proof:
    batches, accuracy = make_batches(files)
    optional = [name for name in (ONNX_FP16_FILE, ONNX_INT8_FILE) if name in files]
    backends = [backend for backend in select_backends(["cpu"], optional=optional) if backend.name in names]
    return prove(files.__getitem__, batches, backends=backends, recorded_accuracy=accuracy, int8_loss=int8_loss)


def failed(proof: Proof) -> set[str]:
    return {failure.backend for failure in proof.all_failures}


def test_files_of_other_precisions_are_judged_where_there_are_any() -> None:
    names = {backend.name for backend in select_backends(["cpu"])}
    with_half = {backend.name for backend in select_backends(["cpu"], optional=[ONNX_FP16_FILE])}
    assert with_half - names == {EAGER_HALF, HALF}
    assert names.isdisjoint({HALF, QUANTISED})


@pytest.fixture(scope="module")
def with_half(good: dict[str, bytes]) -> dict[str, bytes]:
    return {**good, ONNX_FP16_FILE: half_file(good)}


def test_a_good_half_file_is_accepted_by_the_limit_of_eager_half(with_half: dict[str, bytes]) -> None:
    proof = prove_with(with_half, {EAGER, EAGER_HALF, HALF})
    assert failed(proof) == set()
    assert proof.parity is not None
    limits = {part.backend: part.limit for part in proof.parity.backends}
    assert limits[HALF] == proof.parity.tolerances[FLOAT16].limit
    # It is another limit than float32's, by the ratio of the roundings at least.
    assert proof.parity.tolerances[FLOAT16].limit > 100 * proof.parity.tolerances[FLOAT32].limit


def test_a_half_file_of_another_function_is_refused(with_half: dict[str, bytes]) -> None:
    model = {ONNX_FILE: with_half[ONNX_FP16_FILE]}
    edit_onnx(model, lambda proto: _scale_half(proto, "head.4.weight"))
    assert failed(prove_with({**with_half, ONNX_FP16_FILE: model[ONNX_FILE]}, {EAGER, EAGER_HALF, HALF})) == {
        HALF,
        FILES,
    }


def _scale_half(model: onnx.ModelProto, name: str) -> None:
    tensor = next(tensor for tensor in model.graph.initializer if tensor.name == name)
    values = numpy_helper.to_array(tensor) * np.float16(1.25)
    tensor.CopyFrom(numpy_helper.from_array(values, name))


def test_dynamic_int8_is_refused_for_its_company_and_told_the_cure(good: dict[str, bytes], tmp_path: Path) -> None:
    files = {**good, ONNX_INT8_FILE: dynamic_int8_file(good, tmp_path)}
    proof = prove_with(files, {EAGER, QUANTISED})
    # What a user's own tools make does not follow from model.onnx either.
    assert failed(proof) == {QUANTISED, FILES}
    broken = {part.law for part in proof.invariances if part.failures}
    assert "company" in broken
    reasons = [failure.reason for part in proof.invariances for failure in part.failures]
    assert all("quantise statically, with calibrated scales" in reason for reason in reasons)
    # Its distance to float64 has no limit: it is another function by design.
    assert proof.parity is not None
    (grid,) = (part for part in proof.parity.backends if part.backend == QUANTISED)
    assert (grid.limit, grid.failures, grid.precision) == (None, (), INT8)
    assert grid.max_error > proof.parity.tolerance.limit


def test_int8_may_lose_half_a_point_of_accuracy_and_no_more(good: dict[str, bytes]) -> None:
    spoilt = {ONNX_FILE: good[ONNX_FILE]}
    edit_onnx(spoilt, lambda model: edit_tensor(model, "head.4.weight", np.zeros_like))
    proof = prove_with({**good, ONNX_INT8_FILE: spoilt[ONNX_FILE]}, {EAGER, QUANTISED})
    (failure,) = (failure for failure in proof.all_failures if failure.backend == QUANTISED)
    assert failure.where == "test split"
    assert "points below eager's; int8 may lose 0.5" in failure.reason
    # The float32 file answers as well as it does; only what it is is wrong.
    assert failed(prove_with({**good, ONNX_INT8_FILE: good[ONNX_FILE]}, {EAGER, QUANTISED})) == {FILES}


@pytest.mark.parametrize("form", FORMS)
def test_a_good_int8_file_keeps_every_law_and_the_accuracy(good: dict[str, bytes], form: str) -> None:
    proof = prove_with({**good, ONNX_INT8_FILE: quantised(good, form)}, {EAGER, ONNXRUNTIME, QUANTISED})
    assert proof.all_failures == []
    assert {part.law for part in proof.invariances if part.backend == QUANTISED} == set(LAWS)
    float32, int8 = proof.precisions
    assert (float32.file, float32.precision, float32.lost, float32.budget) == (ONNX_FILE, FLOAT32, 0.0, None)
    assert (int8.file, int8.precision, int8.budget) == (ONNX_INT8_FILE, INT8, 0.005)
    assert int8.bytes == len(quantised(good, form))
    assert proof.task is not None
    (part,) = (part for part in proof.task.backends if part.backend == QUANTISED)
    assert (int8.accuracy, int8.macro_f1) == (part.accuracy, part.macro_f1)
    if form != "dynamic":
        # Sums of integers are exact, in any company.
        assert int8.invariance == 0.0


def test_a_really_bad_quantisation_is_refused_with_its_loss(good: dict[str, bytes]) -> None:
    """Every activation cut at a sixteenth of its range, told consistently: only the task can say that it is wrong."""
    told = told_in(quantised(good, "static"))
    told["ranges"] = {name: [end / 16 for end in ends] for name, ends in told["ranges"].items()}
    bad = {**good, ONNX_INT8_FILE: requantize(good[ONNX_FILE], told)}
    proof = prove_with(bad, {EAGER, QUANTISED})
    (failure,) = proof.all_failures
    assert (failure.backend, failure.where) == (QUANTISED, "test split")
    assert proof.task is not None
    accuracy = {part.backend: part.accuracy for part in proof.task.backends}
    loss = 100 * (accuracy[EAGER] - accuracy[QUANTISED])
    assert loss > 5
    assert f"{loss:.2f} points below eager's; int8 may lose 0.5" in failure.reason
    # The budget is the user's to choose.
    assert failed(prove_with(bad, {EAGER, QUANTISED}, int8_loss=loss / 100)) == set()
    assert failed(prove_with(bad, {EAGER, QUANTISED}, int8_loss=loss / 100 - 0.001)) == {QUANTISED}


def test_where_the_rows_are_at_hand_the_ranges_are_found_again(good: dict[str, bytes]) -> None:
    told = told_in(quantised(good, "static"))
    for name, factor, found in (("up", 1.0, 0), ("up", 1.01, 1)):
        path = f"encoder.blocks.0.feed_forward.{name}/MatMul"
        ranges = told["ranges"] | {path: [end * factor for end in told["ranges"][path]]}
        file = requantize(good[ONNX_FILE], told | {"ranges": ranges})
        files = Files({**good, ONNX_INT8_FILE: file}.__getitem__, optional=[ONNX_INT8_FILE], calibration=rows_of(good))
        problems = precisions.check_ranges(files)
        assert len(problems) == found
        assert all(f"encoder.blocks.0.feed_forward.{name} takes" in problem for problem in problems)
    others = Files({**good, ONNX_INT8_FILE: quantised(good, "static")}.__getitem__, optional=[ONNX_INT8_FILE])
    others.calibration = rows_of(good)[:1]
    (problem,) = precisions.check_ranges(others)
    assert "calibrated on other rows than those that training left" in problem


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (lambda values: values + (values < 1) - (values == 1), "other values in the tensor head.4.weight_quantized: "),
        (lambda values: values[:-1], "head.4.weight_quantized, which has another shape or type"),
    ],
)
def test_what_was_edited_is_told(good: dict[str, bytes], edit: Any, told: str) -> None:
    model = {ONNX_FILE: quantised(good, "qdq")}
    edit_onnx(model, lambda proto: edit_tensor(proto, "head.4.weight_quantized", edit))
    files = Files({**good, ONNX_INT8_FILE: model[ONNX_FILE]}.__getitem__, optional=[ONNX_INT8_FILE])
    (problem,) = precisions.check_derived(files)
    assert told in problem or "refused by onnx.checker" in problem


def test_a_linear_that_is_left_in_float_is_counted(good: dict[str, bytes]) -> None:
    files = Files({**good, ONNX_INT8_FILE: _with_one_in_float(good)}.__getitem__, optional=[ONNX_INT8_FILE])
    (problem,) = precisions.check_integers(files)
    assert problem == (
        "model_int8.onnx, form static: ONNX Runtime runs 7 of 8 Linears as MatMulIntegerToFloat, "
        "and 1 products in float"
    )


def _with_one_in_float(good: dict[str, bytes]) -> bytes:
    """Quantise all Linears but the last."""
    linears = find_linears(onnx.load_from_string(good[ONNX_FILE]).graph)
    told = told_in(quantised(good, "static"))
    told["ranges"].pop(linears[-1].name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(write, "find_linears", lambda graph: find_linears(graph)[:-1])
        return requantize(good[ONNX_FILE], told)


def rows_of(files: dict[str, bytes]) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(batch.input_ids, batch.attention_mask) for batch in make_batches(files)[0]]


def quantised(files: dict[str, bytes], form: str) -> bytes:
    return quantize(files[ONNX_FILE], rows_of(files), form=form)


def told_in(model: bytes) -> dict[str, Any]:
    (entry,) = onnx.load_from_string(model).metadata_props
    told: dict[str, Any] = json.loads(entry.value)["quantization"]
    return told
