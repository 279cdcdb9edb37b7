"""The floor: as many products as the encoder has, of the same shapes, and none that ONNX Runtime leaves out."""

from collections import Counter

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from benchmarks.inference.floor import build_floor, floor_inputs
from models.config import EncoderConfig

CONFIG = EncoderConfig(vocab_size=50, max_len=16, dim=12, num_layers=2, num_heads=3, hidden_dim=20)
LABELS = 4
LENGTHS = [5, 2, 5, 7]
TOKENS = sum(LENGTHS)


@pytest.fixture(scope="module")
def floor() -> bytes:
    return build_floor(CONFIG, LENGTHS, LABELS)


def products(model: onnx.ModelProto) -> Counter[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Count the shapes that are multiplied."""
    graph = onnx.shape_inference.infer_shapes(model, strict_mode=True).graph
    shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        shapes[value.name] = tuple(size.dim_value for size in value.type.tensor_type.shape.dim)
    return Counter(tuple(shapes[name] for name in node.input) for node in graph.node if node.op_type == "MatMul")


def test_its_products_are_those_of_the_encoder(floor: bytes) -> None:
    model = onnx.load_from_string(floor)
    assert Counter(node.op_type for node in model.graph.node) == {"Gather": 1, "MatMul": 2 * 6 + 1 + 3 * 2 * 2}
    tokens = (1, TOKENS, 12)
    expected = Counter(
        {
            (tokens, (12, 12)): 2 * 4,  # queries, keys, values and out
            (tokens, (12, 20)): 2,
            ((1, TOKENS, 20), (20, 12)): 2,
            ((4, 12), (12, LABELS)): 1,
        }
    )
    for length, rows in {5: 2, 2: 1, 7: 1}.items():
        expected[(rows, 3, length, 4), (rows, 3, 4, length)] += 2  # QKᵀ
        expected[(rows, 3, length, length), (rows, 3, length, 4)] += 2  # PV
    assert products(model) == expected


def test_onnx_runtime_computes_every_product(floor: bytes, tmp_path) -> None:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    session = ort.InferenceSession(floor, options, providers=["CPUExecutionProvider"])
    operators = Counter(node.op_type for node in onnx.load(tmp_path / "optimised.onnx").graph.node)
    assert operators["MatMul"] + operators["FusedMatMul"] == 2 * 6 + 1 + 3 * 2 * 2
    outputs = session.run(None, floor_inputs(CONFIG, LENGTHS))
    assert [output.shape for output in outputs] == [
        (1, TOKENS, 12),
        (4, LABELS),
        (1, 3, 2, 4),
        (2, 3, 5, 4),
        (1, 3, 7, 4),
    ]
    # Neither vanishing nor overflowing numbers, which processors take longer for.
    assert all(0.01 < np.abs(output).max() < 100 for output in outputs)
