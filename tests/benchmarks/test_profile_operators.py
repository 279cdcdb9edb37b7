"""The operator profile: how ONNX Runtime's events are added up, and that it gives them."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from onnx import TensorProto
from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_value_info

from benchmarks.profile_operators import OperatorTime, main, sum_events
from export.contract import ATTENTION_MASK, INPUT_IDS, LOGITS
from export.onnx_export import ONNX_FILE
from export.profiles import PROFILES

INT64 = TensorProto.INT64


def run(start: int, **nodes: tuple[str, int]) -> list[dict[str, object]]:
    """Make the events of a run: node = (operator, microseconds)."""
    events = [{"cat": "Session", "name": "model_run", "ts": start, "dur": 100, "args": {}}]
    for name, (operator, microseconds) in nodes.items():
        for kind in ("fence_before", "kernel_time"):
            spent = microseconds if kind == "kernel_time" else 7
            arguments = {"op_name": operator}
            events.append({"cat": "Node", "name": f"{name}_{kind}", "ts": start + 1, "dur": spent, "args": arguments})
    return events


def test_times_are_those_of_kernels_in_runs_after_the_warm_up() -> None:
    events = [
        {"cat": "Session", "name": "session_initialization", "ts": 1, "dur": 5, "args": {}},
        *run(1000, a=("MatMul", 9000), b=("Add", 9000)),
        *run(2000, a=("MatMul", 60), b=("Add", 10), c=("MatMul", 20)),
        *run(3000, a=("MatMul", 40), b=("Add", 30), c=("MatMul", 40)),
    ]
    assert sum_events(events, skip=1) == [
        OperatorTime(operator="MatMul", nodes=2, milliseconds=0.08, share=0.8),
        OperatorTime(operator="Add", nodes=1, milliseconds=0.02, share=0.2),
    ]


def test_too_few_runs_are_refused() -> None:
    with pytest.raises(ValueError, match="the profile holds 1 runs; more than 1 are needed"):
        sum_events(run(1000, a=("MatMul", 5)), skip=1)


def test_the_command_shows_each_operator_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / ONNX_FILE
    file.write_bytes(small_model())
    result = CliRunner().invoke(main, [str(file), "--batch", "2", "--length", "4", "--runs", "2"])
    assert result.exit_code == 0, result.output
    header, *rows, total = (line.split() for line in result.stdout.splitlines())
    assert header == ["operator", "nodes", "ms", "share"]
    assert {row[0]: row[1] for row in rows} == {"Mul": "1", "ReduceSum": "1"}
    assert total[0] == "all"


def small_model() -> bytes:
    """Return a model with the inputs of a classifier: the sum of the ids that are not masked."""
    ids, mask = (make_tensor_value_info(name, INT64, ["b", "t"]) for name in (INPUT_IDS, ATTENTION_MASK))
    nodes = [
        make_node("Mul", [INPUT_IDS, ATTENTION_MASK], ["kept"]),
        make_node("ReduceSum", ["kept"], [LOGITS], keepdims=0),
    ]
    graph = make_graph(nodes, "small", [ids, mask], [make_tensor_value_info(LOGITS, INT64, [])])
    profile = PROFILES["cpu"]
    model = make_model(graph, opset_imports=[make_opsetid("", profile.opset)], ir_version=profile.ir_version)
    data: bytes = model.SerializeToString()
    return data


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, [str(tmp_path / "none.onnx")])
    assert result.exit_code == 2
    assert result.stderr == f"profile: {tmp_path / 'none.onnx'} can't be read: No such file or directory.\n"
