"""Attention by groups of rows that are about equally long; where all rows are equally long, without mask and gathers.

If every cell of the rectangle holds a token, the packed tokens are that rectangle: they are reshaped, not gathered, and
nothing is masked. Else each group of rows has a rectangle of its own (`row_groups`). An If a layer chooses, and one
before all layers plans the groups if there is something to group.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

from export.rewrite.attention import PARTS
from export.rewrite.clean import clean
from export.rewrite.graph_writer import GraphWriter
from export.rewrite.linear import LEADING
from export.rewrite.row_groups import Groups, Rectangle, plan_groups


@dataclass(frozen=True, kw_only=True)
class _Layer:
    """What one layer's attention takes, and where its answer goes."""

    parts: list[ir.Value]  # queries, keys, values, (1, 1, N, C) each
    attention: ir.Node
    packed: ir.Value  # (N, C), the answer for the packed tokens
    width: int  # C
    rectangle: Rectangle


class Uneven:
    """The rule: it fires once a layer, if in all layers the same keys of a row are seen by all its queries."""

    def __str__(self) -> str:
        return "uneven"

    def apply_to_model(self, model: ir.Model) -> int:
        """See `Rule`."""
        # What layers share is one value then.
        clean(model)
        layers = list(_find_layers(model.graph))
        if len({layer.rectangle for layer in layers}) != 1:
            return 0
        write = GraphWriter(model.graph, "uneven")
        first = layers[0]
        # As many tokens as cells.
        even = write("Equal", write("Size", first.rectangle.cells), write("Size", first.rectangle.slot))
        groups = plan_groups(write, even, first.rectangle)
        packed = write.constant([1, -1, first.width])
        rectangle = write("Concat", write("Shape", first.rectangle.cells), write.constant([first.width]), axis=0)
        laid_out = write("Where", even, rectangle, packed)
        model.graph.insert_before(_maker(first.packed), write.nodes)
        for number, layer in enumerate(layers):
            write = GraphWriter(model.graph, f"attention_{number}", layer.attention)
            # Out here a Reshape moves nothing; from one graph into another it copies.
            parts = [write("Reshape", part, laid_out) for part in layer.parts]
            for part in parts:
                _tell(part, layer)
            sizes = write.constant([*[1] * len(LEADING), -1, layer.width])
            mixed = write("Reshape", _attend(write, layer, parts, even, packed, groups), sizes)
            tokens = write("Squeeze", mixed, write.constant(LEADING))
            tokens.type, tokens.shape = layer.packed.type, layer.packed.shape
            model.graph.insert_before(_maker(layer.packed), write.nodes)
            ir.convenience.replace_all_uses_with(layer.packed, tokens)
        return len(layers)


UNEVEN = Uneven()


def _find_layers(graph: ir.Graph) -> Iterator[_Layer]:
    for node in graph:
        if node.op_type != "Attention" or len(node.inputs) != PARTS + 1:
            continue
        gathers = [_maker(value) for value in node.inputs[:PARTS]]
        expand = _maker(node.inputs[PARTS])
        # The rule for attention writes this, and an Expand of something else for causal models.
        if any(gather.op_type != "Gather" for gather in gathers) or _maker(expand.inputs[0]).op_type != "Where":
            continue
        ((reshape, _),) = node.outputs[0].uses()
        ((pack, _),) = reshape.outputs[0].uses()
        sizes = pack.outputs[0].shape
        assert sizes is not None
        assert isinstance(sizes[1], int)
        yield _Layer(
            parts=[_value(_maker(gather.inputs[0]).inputs[0]) for gather in gathers],
            attention=node,
            packed=pack.outputs[0],
            width=sizes[1],
            rectangle=Rectangle(
                cells=_value(gathers[0].inputs[1]), slot=_value(pack.inputs[1]), added=_value(expand.inputs[0])
            ),
        )


def _attend(
    write: GraphWriter, layer: _Layer, parts: list[ir.Value], even: ir.Value, packed: ir.Value, groups: Groups
) -> ir.Value:
    """Write one layer's attention: (B, L, C) if the rows are even, else (1, N, C), as queries, keys and values are."""
    one, many = write.branch("even"), write.branch("groups")
    whole = _attention(one, layer, parts)
    leading = many.constant([0])
    flat = []
    for cells, added in zip(groups.cells, groups.added, strict=True):
        taken = [many("Squeeze", many("Gather", part, cells, axis=1), leading) for part in parts]
        flat.append(many("Reshape", _attention(many, layer, [*taken, added]), packed))
    gathered = many("Gather", many("Concat", *flat, axis=1), groups.slot, axis=1)
    for value in (whole, gathered):
        _tell(value, layer)
    (mixed,) = write.choose(even, (one, [whole]), (many, [gathered]))
    return mixed


def _tell(value: ir.Value, layer: _Layer) -> None:
    """Say that a value is (·, ·, C): ONNX does not infer so much, and takes the width of heads for 0 then."""
    value.type, value.shape = layer.packed.type, ir.Shape([None, None, layer.width])


def _attention(write: GraphWriter, layer: _Layer, taken: list[ir.Value]) -> ir.Value:
    return write("Attention", *taken, **{name: part.value for name, part in layer.attention.attributes.items()})


def _maker(value: ir.Value | None) -> ir.Node:
    node = None if value is None else value.producer()
    assert node is not None, "the rule for attention writes these values"
    return node


def _value(value: ir.Value | None) -> ir.Value:
    assert value is not None
    return value
