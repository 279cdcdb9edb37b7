"""Each precision is held to what it can keep: half to eager half, int8 to the task and the invariances."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from export.onnx_export import ONNX_FILE
from export.proof.precision import FLOAT16, FLOAT32, INT8
from export.proof.prove import Proof, prove
from export.proof.runtimes import EAGER, EAGER_HALF, ONNX_FP16_FILE, ONNX_INT8_FILE, select_backends
from tests.export.proof.precisions import dynamic_int8_file, half_file
from tests.export.proof.subjects import make_batches
from tests.export.proof.test_sabotage import edit_tensor
from tests.sabotage.tools import edit_onnx

HALF = "onnxruntime-cpu-all-float16"
QUANTISED = "onnxruntime-cpu-all-int8"


def prove_with(files: dict[str, bytes], names: set[str]) -> Proof:
    batches, accuracy = make_batches(files)
    optional = [name for name in (ONNX_FP16_FILE, ONNX_INT8_FILE) if name in files]
    backends = [backend for backend in select_backends(["cpu"], optional=optional) if backend.name in names]
    return prove(files.__getitem__, batches, backends=backends, recorded_accuracy=accuracy)


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
    edit_onnx(model, lambda proto: _scale_half(proto, "model.head.4.weight"))
    assert failed(prove_with({**with_half, ONNX_FP16_FILE: model[ONNX_FILE]}, {EAGER, EAGER_HALF, HALF})) == {HALF}


def _scale_half(model: onnx.ModelProto, name: str) -> None:
    tensor = next(tensor for tensor in model.graph.initializer if tensor.name == name)
    values = numpy_helper.to_array(tensor) * np.float16(1.25)
    tensor.CopyFrom(numpy_helper.from_array(values, name))


def test_dynamic_int8_is_refused_for_its_company_and_told_the_cure(good: dict[str, bytes], tmp_path: Path) -> None:
    files = {**good, ONNX_INT8_FILE: dynamic_int8_file(good, tmp_path)}
    proof = prove_with(files, {EAGER, QUANTISED})
    assert failed(proof) == {QUANTISED}
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
    # The float32 file is no worse as an int8 file than it is.
    assert failed(prove_with({**good, ONNX_INT8_FILE: good[ONNX_FILE]}, {EAGER, QUANTISED})) == set()
