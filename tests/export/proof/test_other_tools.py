"""Tools that share no code with ONNX Runtime or with us answer as it does: OpenVINO's runtime, Polygraphy's comparator.

OpenVINO gets the profile `portable`, which is for every runtime. Of the profile `cpu` it answers one batch in a hundred
wrongly, and the same batch rightly when it is asked again (2026.4.1). On processors with matrix units it computes in
bfloat16 unless it is told otherwise, so it is told; its answers then lie within the limit that binds every backend.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import openvino as ov
import pytest
from onnx import numpy_helper
from polygraphy.backend.base import BaseRunner
from polygraphy.backend.onnxrt import OnnxrtRunner
from polygraphy.common import TensorMetadata
from polygraphy.comparator import Comparator, SimpleCompareFunc
from polygraphy.datatype import DataType
from polygraphy.logger import G_LOGGER

from export.contract import (
    ATTENTION_MASK,
    INPUT_IDS,
    LOGITS,
    TEXT_CLASSIFICATION,
    TOKEN_CLASSIFICATION,
)
from export.model import CONFIG_FILE, TASKS, model_limits
from export.onnx_export import ONNX_FILE
from export.proof.cases import Case, build_grid
from export.proof.runtimes import EAGER, Array, Ids, load_reference, open_runtime
from export.proof.tolerance import derive_tolerance, find_fault
from models.attention import ATTENTIONS
from tests.export.proof.subjects import build_files

Files = dict[str, bytes]
Run = Callable[[Ids, Ids], Array]

ONNX_RUNTIME = "onnxruntime-cpu-all"
# Every mechanism and task once, each with other parts around it.
PARTS: dict[str, dict[str, Any]] = {
    TEXT_CLASSIFICATION: {"position": "learned", "norm": "post", "activation": "relu", "pooling": "first"},
    TOKEN_CLASSIFICATION: {"position": "none", "causal": True},
}
MODELS = [(attention, task) for attention in ATTENTIONS for task in TASKS]


def open_openvino(model: bytes) -> Run:
    """Compile an ONNX file for the CPU by OpenVINO, in float32 and on one thread."""
    compiled = ov.Core().compile_model(
        ov.Core().read_model(model), "CPU", {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
    )

    def run(input_ids: Ids, attention_mask: Ids) -> Array:
        answers = compiled({INPUT_IDS: input_ids, ATTENTION_MASK: attention_mask})
        return np.array(answers[LOGITS])

    return run


def answer_all(run: Run, cases: Sequence[Case]) -> list[Array]:
    return [run(case.input_ids, case.attention_mask) for case in cases]


def judge(files: Files) -> tuple[list[Case], list[Array], float]:
    """Return the whole grid, the reference's answers to it, and the limit that follows."""
    cases = build_grid(model_limits(json.loads(files[CONFIG_FILE])))
    reference = answer_all(load_reference(files.__getitem__).run, cases)
    eager = answer_all(open_runtime(EAGER, files.__getitem__).run, cases)
    return cases, reference, derive_tolerance(eager, reference).limit


def faults(cases: Sequence[Case], actual: Sequence[Array], expected: Sequence[Array], limit: float) -> list[str]:
    found = [(case.name, find_fault(a, b, limit)) for case, a, b in zip(cases, actual, expected, strict=True)]
    return [f"{name}: {fault}" for name, fault in found if fault]


def change_largest_weight(model: bytes) -> bytes:
    """Multiply the largest weight of the first matrix by 1.01; the graph stays as it was."""
    proto = onnx.load_from_string(model)
    tensor = next(tensor for tensor in proto.graph.initializer if tensor.name.endswith(".qkv.weight"))
    weights = numpy_helper.to_array(tensor).copy()
    weights.flat[np.abs(weights).argmax()] *= 1.01
    tensor.CopyFrom(numpy_helper.from_array(weights, tensor.name))
    changed: bytes = proto.SerializeToString()
    return changed


def ignore_mask(model: bytes) -> bytes:
    """Read every position as a token: attention_mask is compared with −1 instead of 0."""
    proto = onnx.load_from_string(model)
    proto.graph.initializer.append(numpy_helper.from_array(np.array(-1, np.int64), "minus_one"))
    (compare,) = (node for node in proto.graph.node if node.op_type == "Equal" and node.input[0] == ATTENTION_MASK)
    compare.input[1] = "minus_one"
    changed: bytes = proto.SerializeToString()
    return changed


@pytest.fixture(scope="module", params=MODELS, ids=["-".join(model) for model in MODELS])
def files(request: pytest.FixtureRequest) -> Files:
    attention, task = request.param
    return build_files(task=task, attention=attention, profile="portable", **PARTS[task])


@pytest.fixture(scope="module")
def portable() -> Files:
    return build_files(profile="portable")


def test_openvino_answers_as_onnx_runtime_does_on_the_whole_grid(files: Files) -> None:
    cases, reference, limit = judge(files)
    longest = model_limits(json.loads(files[CONFIG_FILE])).max_length
    assert {f"B3-T{longest}-holes", "B1-T1-ones", "B2-T7-empty-row", "B8-T16-all-empty"} <= {c.name for c in cases}
    openvino = answer_all(open_openvino(files[ONNX_FILE]), cases)
    assert faults(cases, openvino, reference, limit) == []
    assert faults(cases, openvino, answer_all(open_runtime(ONNX_RUNTIME, files.__getitem__).run, cases), limit) == []


@pytest.mark.parametrize("sabotage", [change_largest_weight, ignore_mask])
def test_openvino_tells_a_sabotaged_graph_apart(portable: Files, sabotage: Callable[[bytes], bytes]) -> None:
    cases, reference, limit = judge(portable)
    bad = {**portable, ONNX_FILE: sabotage(portable[ONNX_FILE])}
    openvino = answer_all(open_openvino(bad[ONNX_FILE]), cases)
    assert faults(cases, openvino, reference, limit)
    # It is the graph that is wrong: ONNX Runtime finds the same wrong answers in it.
    assert faults(cases, openvino, answer_all(open_runtime(ONNX_RUNTIME, bad.__getitem__).run, cases), limit) == []


class RuntimeRunner(BaseRunner):
    """Lets Polygraphy run anything that answers for ids and a mask."""

    def __init__(self, name: str, run: Run) -> None:
        super().__init__(name=name)
        self._answer = run

    def get_input_metadata_impl(self) -> TensorMetadata:
        return TensorMetadata().add(INPUT_IDS, DataType.INT64, (-1, -1)).add(ATTENTION_MASK, DataType.INT64, (-1, -1))

    def infer_impl(self, feed_dict: dict[str, Ids]) -> dict[str, Array]:
        self.inference_time = 0.0  # wanted by the base class, and of no interest here
        return {LOGITS: self._answer(feed_dict[INPUT_IDS], feed_dict[ATTENTION_MASK])}


def session(model: bytes, level: ort.GraphOptimizationLevel) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    options.intra_op_num_threads = 1
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def compare_by_polygraphy(truth: Files, model: bytes, for_openvino: bytes) -> dict[str, int]:
    """Let Polygraphy compare three runs with the reference, and count the cases refused in each."""
    cases, _, limit = judge(truth)
    cases = [case for case in cases if len(case.input_ids) == 3]
    runners = [
        RuntimeRunner("reference", load_reference(truth.__getitem__).run),
        OnnxrtRunner(session(model, ort.GraphOptimizationLevel.ORT_DISABLE_ALL), name="optimisation off"),
        OnnxrtRunner(session(model, ort.GraphOptimizationLevel.ORT_ENABLE_ALL), name="optimisation all"),
        RuntimeRunner("openvino", open_openvino(for_openvino)),
    ]
    feeds = [{INPUT_IDS: case.input_ids, ATTENTION_MASK: case.attention_mask} for case in cases]
    # It passes what is within either tolerance, so the relative one is closed.
    within = SimpleCompareFunc(atol=limit, rtol=0.0, check_error_stat="max")
    with G_LOGGER.verbosity(G_LOGGER.CRITICAL):
        results = Comparator.run(runners, data_loader=feeds)
        assert Comparator.validate(results, check_inf=True, check_nan=True)
        accuracy = Comparator.compare_accuracy(results, comparisons=[(0, 1), (0, 2), (0, 3)], compare_func=within)
    (verdict,) = accuracy
    refused = {name: sum(not match[LOGITS] for match in matches) for (_, name), matches in verdict.items()}
    assert bool(accuracy) == (not any(refused.values()))
    return refused


def test_polygraphy_finds_every_run_equal_to_the_reference(good: Files, portable: Files) -> None:
    refused = compare_by_polygraphy(good, good[ONNX_FILE], portable[ONNX_FILE])
    assert refused == {"optimisation off": 0, "optimisation all": 0, "openvino": 0}


@pytest.mark.parametrize("sabotage", [change_largest_weight, ignore_mask])
def test_polygraphy_tells_a_sabotaged_graph_apart(
    good: Files, portable: Files, sabotage: Callable[[bytes], bytes]
) -> None:
    refused = compare_by_polygraphy(good, sabotage(good[ONNX_FILE]), sabotage(portable[ONNX_FILE]))
    assert set(refused) == {"optimisation off", "optimisation all", "openvino"}
    assert all(count > 10 for count in refused.values())
