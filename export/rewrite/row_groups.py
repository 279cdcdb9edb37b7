"""Groups of rows that are about equally long, each with a rectangle of its own, as wide as its longest row.

In one rectangle a short row costs what the longest costs: attention's time is B·L². Rows are sorted by length and cut
into GROUPS groups. With lengths spread evenly over 1 … L these have 0.42 of the one rectangle's area.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from export.rewrite.graph_writer import GraphWriter

# More of them fit the rows more closely, and cost each layer more operators. 4, 6, 8 and 12 were within 4 % of one
# another at 8×128, 32×64 and 16×256 with lengths spread evenly, 6 never the slowest.
GROUPS = 6
_INT64, _FLOAT = ir.TensorType(ir.DataType.INT64), ir.TensorType(ir.DataType.FLOAT)


@dataclass(frozen=True, kw_only=True)
class Rectangle:
    """Where packed tokens stand in the one rectangle of all rows, and which keys it hides."""

    cells: ir.Value  # (B, L) int64, the packed token at each cell; cells without a token repeat the row's last
    slot: ir.Value  # (N,) int64, the cell of each packed token
    added: ir.Value  # (B, 1, 1, L), what is added to the scores of each key


@dataclass(frozen=True, kw_only=True)
class Groups:
    """The rectangles of the groups, r rows each, and where each packed token stands in them, one after another."""

    cells: list[ir.Value]  # (r, w) int64, packed tokens
    added: list[ir.Value]  # (r, 1, w, w), what is added to the scores
    slot: ir.Value  # (N,) int64


def plan_groups(write: GraphWriter, even: ir.Value, rectangle: Rectangle) -> Groups:
    """Write what sorts the rows, longest first, and cuts them.

    Args:
        write: where the nodes go.
        even: bool; if it is true the groups are not planned, and what stands for them is of no use.
        rectangle: of all rows.
    """
    plan, nothing = write.branch("plan"), write.branch("nothing")
    zero, one = plan.constant(0), plan.constant(1)
    first, second = plan.constant([0]), plan.constant([1])
    B, L = (plan("Gather", plan("Shape", rectangle.cells), axis) for axis in (zero, one))
    # (B,): the cells of a row end with its last token.
    ends = (plan("Gather", rectangle.cells, plan("Sub", L, one), axis=1), plan("Gather", rectangle.cells, zero, axis=1))
    lengths = plan("Add", plan("Sub", *ends), one)
    lengths_sorted, order = plan.several(
        "TopK", [ir.Value(), ir.Value()], lengths, plan("Unsqueeze", B, first), axis=0, largest=1, sorted=1
    )

    # r rows a group. The last may share rows with the one before it, and those after the last row are one column wide.
    groups = plan.constant(GROUPS)
    r = plan("Div", plan("Add", B, plan.constant(GROUPS - 1)), groups)
    begin = plan("Mul", plan.constant(range(GROUPS)), r)
    begin_inside = plan("Min", begin, plan("Sub", B, r))  # (GROUPS,)
    longest = plan("Gather", lengths_sorted, begin_inside)
    width = plan("Where", plan("Less", begin, B), longest, one)
    area = plan("Mul", width, r)
    before = plan("Sub", plan("CumSum", area, zero), area)  # the cells of the groups before each

    cells, added = [], []
    cells_sorted, added_sorted = plan("Gather", rectangle.cells, order), plan("Gather", rectangle.added, order)
    for number in range(GROUPS):
        place = plan.constant([number])
        start, w = plan("Gather", begin_inside, place), plan("Gather", width, place)
        corner = plan("Concat", start, first, axis=0)
        opposite = plan("Concat", plan("Add", start, r), w, axis=0)
        cells.append(plan("Slice", cells_sorted, corner, opposite, plan.constant([0, 1])))
        keys = plan("Slice", added_sorted, corner, opposite, plan.constant([0, 3]))
        added.append(plan("Expand", keys, plan("Concat", second, second, w, second, axis=0)))

    # Where a row's first token stands, for rows as sorted, and as they come.
    rank = plan("Range", zero, B, one)
    group = plan("Div", rank, r)
    group_begin, group_width, group_before = (plan("Gather", part, group) for part in (begin_inside, width, before))
    base_sorted = plan("Add", group_before, plan("Mul", plan("Sub", rank, group_begin), group_width))
    base = plan("ScatterElements", lengths, order, base_sorted, axis=0)
    row = plan("Div", rectangle.slot, L)
    column = plan("Sub", rectangle.slot, plan("Mul", row, L))
    slot = plan("Add", plan("Gather", base, row), column)

    planned = [*cells, *added, slot]
    types = [*[_INT64] * GROUPS, *[_FLOAT] * GROUPS, _INT64]
    ranks = [*[2] * GROUPS, *[4] * GROUPS, 1]
    unused = [
        *_repeat(nothing, rectangle.cells, axis=1),
        *_repeat(nothing, rectangle.added, axis=3),
        nothing("Slice", rectangle.slot, first, second),
    ]
    for kind, axes, value, small in zip(types, ranks, planned, unused, strict=True):
        value.type = small.type = kind
        value.shape = small.shape = ir.Shape([None] * axes)
    given = write.choose(even, (nothing, unused), (plan, planned))
    return Groups(cells=list(given[:GROUPS]), added=list(given[GROUPS:-1]), slot=given[-1])


def _repeat(write: GraphWriter, value: ir.Value, *, axis: int) -> Sequence[ir.Value]:
    """Write GROUPS values like one, each with its first column alone."""
    columns = write("Gather", value, write.constant([0] * GROUPS), axis=axis)
    return write.several("Split", [ir.Value() for _ in range(GROUPS)], columns, axis=axis, num_outputs=GROUPS)
