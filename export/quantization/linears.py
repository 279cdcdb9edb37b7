"""The Linears of an exported graph, and the tables that ids are looked up in: what has weights to quantise."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import onnx

from export.node_names import inputs_of


@dataclass(frozen=True)
class Part:
    """The number-th of `count` equal parts."""

    number: int = 0
    count: int = 1

    def of(self, rows: int) -> slice:
        size = rows // self.count
        return slice(self.number * size, (self.number + 1) * size)

    @property
    def suffix(self) -> str:
        """What tells the parts of one tensor apart in a name."""
        return f"_{self.number}" if self.count > 1 else ""


@dataclass(frozen=True, kw_only=True)
class Linear:
    """x · weightᵀ + bias, as the nodes that compute it and the values that they take.

    `weight` names a tensor (rows, inputs), of which `part` are the outputs, all of them or a part that a Split takes;
    `bias` names a value (outputs,), None where there is none; `input` is what the product takes, `output` what the last
    of the nodes gives.
    """

    product: onnx.NodeProto
    input: str
    weight: str
    part: Part
    bias: str | None
    output: str

    @property
    def name(self) -> str:
        return str(self.product.name)

    @property
    def stored(self) -> str:
        """What its own part of the weight is called where it is stored."""
        return f"{self.weight}{self.part.suffix}"

    @property
    def sums(self) -> bool:
        """Whether a node after the product adds the bias."""
        return self.bias is not None


def find_linears(graph: onnx.GraphProto) -> list[Linear]:
    """Return the Linears of a graph in its order.

    Raises:
        ValueError: if a product takes a weight in another form than Ferry's rewrite rules leave.
    """
    matrices = {tensor.name for tensor in graph.initializer if len(tensor.dims) == 2}
    vectors = {tensor.name for tensor in graph.initializer if len(tensor.dims) == 1}
    turned = {node.output[0]: (node.input[0], Part()) for node in graph.node if node.op_type == "Transpose"}
    for node in graph.node:
        if node.op_type != "Split":
            continue
        parts = [Part(number, len(node.output)) for number in range(len(node.output))]
        if node.input[0] in vectors:
            vectors |= {*node.output}
        elif node.input[0] in turned:
            whole = turned[node.input[0]][0]
            turned |= {name: (whole, part) for name, part in zip(node.output, parts, strict=True)}
    readers = Counter(name for node in graph.node for name in inputs_of(node))
    sums = {name: node for node in graph.node if node.op_type == "Add" for name in node.input}
    linears = []
    for node in graph.node:
        if node.op_type == "Gemm" or (node.op_type == "MatMul" and matrices & set(node.input)):
            raise ValueError(
                f"the Linear {node.name} is not a MatMul by a turned weight, as Ferry's rewrite rules leave them; "
                "it can't be quantised. Export the model with this version of Ferry."
            )
        weight, part = turned.get(node.input[1], ("", Part())) if node.op_type == "MatMul" else ("", Part())
        if weight not in matrices:
            continue
        after = sums.get(node.output[0]) if readers[node.output[0]] == 1 else None
        bias = next((name for name in after.input if name in vectors), None) if after is not None else None
        linears.append(
            Linear(
                product=node,
                input=node.input[0],
                weight=weight,
                part=part,
                bias=bias,
                output=node.output[0] if after is None or bias is None else after.output[0],
            )
        )
    return linears


def find_lookups(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes that look rows up in a stored matrix of float32."""
    tables = {
        tensor.name
        for tensor in graph.initializer
        if len(tensor.dims) == 2 and tensor.data_type == onnx.TensorProto.FLOAT
    }
    for node in graph.node:
        if node.op_type == "Gather" and node.input[0] in tables:
            yield node
