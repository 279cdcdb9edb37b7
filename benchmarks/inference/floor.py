"""The floor: an ONNX graph of the encoder's matrix products alone, with nothing between them.

A layer's products stand in chains: each takes what the one before gave, so that none can be left out, and all weights
are constants, as a model's are. The Linears see N packed tokens; QKᵀ and PV see each row at its true length, those of
one length together. Nothing normalises what runs through the chains, so the weights are scaled to keep its size.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from export.profiles import PROFILES
from export.proof.runtimes import Array
from models.config import EncoderConfig

IDS, POOLED = "ids", "pooled"


def build_floor(config: EncoderConfig, lengths: Sequence[int], num_labels: int) -> bytes:
    """Build the graph for rows of these lengths.

    Its inputs are ids (1, N) int64, pooled (B, C) float, and for each length n that b rows have: q_n, k_n and v_n, of
    shapes (b, H, n, D), (b, H, D, n) and (b, H, n, D).
    """
    products = _Products()
    products.constant("embedding", (config.vocab_size, config.dim), 1.0)
    tokens = products.join("Gather", "embedding", IDS)
    for layer in range(config.num_layers):
        tokens = _linears(products, config, layer, tokens)
    products.give(tokens, (1, sum(lengths), config.dim))
    products.constant("classifier", (config.dim, num_labels), config.dim**-0.5)
    products.give(products.join("MatMul", POOLED, "classifier"), (len(lengths), num_labels))
    head_dim = config.dim // config.num_heads
    inputs = [
        helper.make_tensor_value_info(IDS, TensorProto.INT64, [1, sum(lengths)]),
        helper.make_tensor_value_info(POOLED, TensorProto.FLOAT, [len(lengths), config.dim]),
    ]
    for length, rows in sorted(Counter(lengths).items()):
        for name, shape in _head_shapes(rows, config.num_heads, length, head_dim).items():
            inputs.append(helper.make_tensor_value_info(f"{name}_{length}", TensorProto.FLOAT, shape))
        mixed = f"q_{length}"
        for _ in range(config.num_layers):
            mixed = products.join("MatMul", products.join("MatMul", mixed, f"k_{length}"), f"v_{length}")
        products.give(mixed, (rows, config.num_heads, length, head_dim))
    return products.save(inputs)


def floor_inputs(config: EncoderConfig, lengths: Sequence[int]) -> dict[str, Array]:
    """Draw inputs that keep the size of what runs through the chains."""
    rng = np.random.default_rng(0)
    head_dim = config.dim // config.num_heads
    inputs: dict[str, Array] = {
        IDS: rng.integers(0, config.vocab_size, (1, sum(lengths))),
        POOLED: rng.standard_normal((len(lengths), config.dim), np.float32),
    }
    for length, rows in Counter(lengths).items():
        sizes = {"q": 1.0, "k": head_dim**-0.5, "v": length**-0.5}
        for name, shape in _head_shapes(rows, config.num_heads, length, head_dim).items():
            inputs[f"{name}_{length}"] = sizes[name] * rng.standard_normal(shape, np.float32)
    return {name: value if name == IDS else value.astype(np.float32) for name, value in inputs.items()}


def _head_shapes(rows: int, num_heads: int, length: int, head_dim: int) -> dict[str, tuple[int, ...]]:
    apart, turned = (rows, num_heads, length, head_dim), (rows, num_heads, head_dim, length)
    return {"q": apart, "k": turned, "v": apart}


def _linears(products: "_Products", config: EncoderConfig, layer: int, tokens: str) -> str:
    C, F = config.dim, config.hidden_dim
    shapes = {"q": (C, C), "k": (C, C), "v": (C, C), "out": (C, C), "up": (C, F), "down": (F, C)}
    for part, shape in shapes.items():
        weight = f"layer{layer}.{part}"
        products.constant(weight, shape, shape[0] ** -0.5)
        tokens = products.join("MatMul", tokens, weight)
    return tokens


class _Products:
    """A graph that grows product by product."""

    def __init__(self) -> None:
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []
        self._given: list[onnx.ValueInfoProto] = []
        self._rng = np.random.default_rng(0)

    def constant(self, name: str, shape: tuple[int, ...], size: float) -> None:
        values = (size * self._rng.standard_normal(shape, np.float32)).astype(np.float32)
        self._constants.append(numpy_helper.from_array(values, name))

    def join(self, operator: str, left: str, right: str) -> str:
        name = f"value{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, [left, right], [name]))
        return name

    def give(self, name: str, shape: tuple[int, ...]) -> None:
        self._given.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))

    def save(self, inputs: Sequence[onnx.ValueInfoProto]) -> bytes:
        graph = helper.make_graph(self._nodes, "floor", inputs, self._given, self._constants)
        profile = PROFILES["cpu"]
        opsets = [helper.make_opsetid("", profile.opset)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=profile.ir_version)
        onnx.checker.check_model(model)
        data: bytes = model.SerializeToString()
        return data
