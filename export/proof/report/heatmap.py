"""The grid as coloured cells: a band of rows for each backend, a row of it for each batch size.

Columns are mask patterns, grouped by sequence length, so that a fault of a length, a batch or a mask is seen as a line.
Behind them stand inputs of every length, and those that hold the vocabulary.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from export.proof.report.figures import share
from export.proof.report.markup import Html, element, join

# The shade of a cell by the share of the limit that it uses; healthy backends lie near 0.2.
SHADES = (0.05, 0.1, 0.2, 0.4, 0.7, 1.0)
# How the pattern of an input begins that has no place by batch and mask, and the title over such inputs.
BEHIND = {"odd-": "every length", "ids-from-": "every id"}
# Stands between two blocks.
_GAP = element("td", class_="gap")


class Block(NamedTuple):
    """A group of columns: `cells[row][column]` is the index of a case, or None where the grid has none."""

    title: str
    columns: list[str]
    cells: list[list[int | None]]


def lay_out(cases: Sequence[Mapping[str, Any]]) -> tuple[list[int], list[Block]]:
    """Return the batch sizes, one a row, and the blocks of columns."""
    behind = {
        title: [index for index, case in enumerate(cases) if case["pattern"].startswith(start)]
        for start, title in BEHIND.items()
    }
    grid = {
        (case["length"], case["pattern"], case["batch"]): index
        for index, case in enumerate(cases)
        if not case["pattern"].startswith(tuple(BEHIND))
    }
    batches = sorted({batch for _, _, batch in grid})
    # Long rows have every pattern, in the order of the table of masks; short ones lack some.
    order = dict.fromkeys(pattern for _, pattern, _ in sorted(grid, key=lambda place: -place[0]))
    blocks = []
    for length in sorted({length for length, _, _ in grid}):
        found = {pattern for own, pattern, _ in grid if own == length}
        patterns = [pattern for pattern in order if pattern in found]
        cells = [[grid.get((length, pattern, batch)) for pattern in patterns] for batch in batches]
        blocks.append(Block(f"{length}", patterns, cells))
    # Column by column, as lengths and ids follow each other.
    height = max(1, len(batches))
    for title, indices in behind.items():
        if indices:
            rows = [list[int | None](indices[row::height]) for row in range(height)]
            width = len(rows[0])
            blocks.append(Block(title, [""] * width, [row + [None] * (width - len(row)) for row in rows]))
    return batches, blocks


def heatmap(parity: Mapping[str, Any], failed: Mapping[str, Mapping[str, str]]) -> Html:
    """Build the table.

    Args:
        parity: this part of verification.json.
        failed: the reasons of failures by backend and name of the case.
    """
    cases = parity["cases"]
    batches, blocks = lay_out(cases)
    head = element(
        "thead",
        element(
            "tr",
            element("th", "sequence length", colspan=2, scope="row", class_="axis"),
            *(
                join([_GAP, element("th", block.title, colspan=len(block.columns), scope="colgroup")])
                for block in blocks
            ),
        ),
        element(
            "tr",
            element("th", "backend", scope="col", class_="axis"),
            element("th", element("span", "batch"), scope="col", class_="mask"),
            *(join([_GAP, *(_mask(pattern) for pattern in block.columns)]) for block in blocks),
        ),
    )
    bodies = []
    for index, backend in enumerate(parity["backends"]):
        reasons = failed.get(backend["backend"], {})
        rows = []
        for row, batch in enumerate(batches):
            name = element("th", backend["backend"], scope="rowgroup", rowspan=len(batches), class_="backend")
            cells = join(_cells(blocks, row, cases, backend, reasons))
            rows.append(
                element(
                    "tr", *([name] if row == 0 else []), element("th", f"{batch}", scope="row", class_="batch"), cells
                )
            )
        bodies.append(element("tbody", *rows, data_backend=index))
    return element("div", element("table", head, *bodies, class_="map", id="map"), class_="scroll map-frame")


def legend() -> Html:
    bounds = [f"≤ {100 * bound:g} %" for bound in SHADES]
    entries = [*((f"q{index}", bound) for index, bound in enumerate(bounds)), ("bad", "beyond the limit")]
    entries += [("bad none", "wrong or no answer"), ("free", "no limit for this precision"), ("out", "not asked")]
    return element(
        "p",
        element("span", "Share of the limit", class_="label"),
        *(element("span", element("i", class_=f"cell {kind}"), text) for kind, text in entries),
        class_="legend",
    )


def _cells(
    blocks: Sequence[Block],
    row: int,
    cases: Sequence[Mapping[str, Any]],
    backend: Mapping[str, Any],
    reasons: Mapping[str, str],
) -> Iterator[Html]:
    for block in blocks:
        yield _GAP
        for case in block.cells[row]:
            if case is None:
                yield element("td")
            else:
                kind = _kind(backend["errors"][case], backend["limit"], failed=cases[case]["name"] in reasons)
                yield element("td", class_=kind, data_case=case)


def _mask(pattern: str) -> Html:
    return element("th", element("span", pattern.replace("-", " ")), scope="col", class_="mask")


def _kind(error: float | str | None, limit: float | None, *, failed: bool) -> str:
    """Return the classes of a cell; whether it failed is told, not judged."""
    if isinstance(error, str):
        return "out"
    used = share(error, limit)
    if failed:
        return "bad" if used is not None and used > 1 else "bad none"
    if used is None:
        return "free"
    return f"q{next((index for index, bound in enumerate(SHADES) if used <= bound), len(SHADES) - 1)}"
