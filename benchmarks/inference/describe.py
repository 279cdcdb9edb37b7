"""The measurements as a part of the report: rows for programs, tables for people."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from benchmarks.inference.measure import FLOOR, SORTED, Timed, compare_each
from benchmarks.inference.ours import FLOAT32
from benchmarks.inference.peers import PEERS
from benchmarks.inference.work import FILLS
from benchmarks.parts import Table

# What ran, and what did not, in the cell of a table.
NOT_MEASURED = "–"
_FILL_TITLES = {"full": "no padding", "half": "half of the positions are padding"}


def title_of(candidate: str) -> str:
    """Return a candidate's name for people."""
    peer, _, rows = candidate.partition(SORTED)
    if rows:
        return f"{title_of(peer)}, sorted in batches of {rows}"
    if candidate in PEERS:
        return PEERS[candidate].title
    if candidate == FLOOR:
        return "floor: the matrix products alone"
    return candidate.replace(FLOAT32, "Ferry", 1).replace("-", " ", 1).replace("-", ", ", 1)


def latency_rows(timed: Sequence[Timed]) -> list[dict[str, Any]]:
    """One row for each candidate on each shape and fill: its median, its spread, and its ratio to ours."""
    rows = []
    for shape in timed:
        ratios = compare_each(shape)
        for name, seconds in shape.seconds.items():
            low, median, high = (round(1e3 * float(value), 4) for value in np.quantile(seconds, (0.1, 0.5, 0.9)))
            rows.append(
                {
                    "candidate": name,
                    "batch": shape.batch,
                    "length": shape.length,
                    "fill": shape.fill,
                    "tokens": shape.tokens,
                    "repetitions": len(seconds),
                    "median_ms": median,
                    "p10_ms": low,
                    "p90_ms": high,
                    "to_ours": asdict(ratios[name]) if name in ratios else None,
                }
            )
    return rows


def latency_tables(rows: Sequence[Mapping[str, Any]]) -> list[Table]:
    """One table a fill: candidates down, shapes across, medians in milliseconds."""
    return [_latency_table(fill, [row for row in rows if row["fill"] == fill]) for fill in FILLS]


def _latency_table(fill: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    shapes = list(dict.fromkeys((row["batch"], row["length"]) for row in rows))
    medians = {(row["candidate"], row["batch"], row["length"]): row["median_ms"] for row in rows}
    candidates = list(dict.fromkeys(row["candidate"] for row in rows if SORTED not in row["candidate"]))
    lines = [[title_of(name), *(_show(medians.get((name, *shape))) for shape in shapes)] for name in candidates]
    best = {
        shape: min(
            ((medians[name, *shape], name) for name, *at in medians if SORTED in name and tuple(at) == shape),
            default=None,
        )
        for shape in shapes
    }
    if any(best.values()):
        cells = [f"{_show(found[0])} ({title_of(found[1])})" if found else NOT_MEASURED for found in best.values()]
        lines.append(["fastest peer in sorted batches", *cells])
    columns = ["milliseconds", *(f"{batch} × {length}" for batch, length in shapes)]
    return Table(title=f"Latency, {_FILL_TITLES[fill]}", columns=columns, rows=lines)


def own_table(seconds: Mapping[str, Sequence[float]], texts: int) -> Table:
    rows = [
        [title_of(name), f"{np.median(times):.2f}", f"{texts / float(np.median(times)):.0f}"]
        for name, times in seconds.items()
    ]
    return Table(
        title=f"The trained model, its test split of {texts} texts in its own order, batches of 32",
        columns=["", "seconds", "texts a second"],
        rows=rows,
    )


def start_table(starts: Sequence[Mapping[str, Any]]) -> Table:
    rows = [
        [title_of(row["candidate"]), f"{row['bytes'] / 1e6:.1f}", _show(row["load_ms"]), _show(row["first_ms"])]
        for row in starts
    ]
    return Table(
        title="Size and start, in a process that did nothing before",
        columns=["", "MB", "load, ms", "first answer of 1 × 16, ms"],
        rows=rows,
    )


def _show(milliseconds: float | None) -> str:
    if milliseconds is None:
        return NOT_MEASURED
    return f"{milliseconds:.2f}" if milliseconds < 10 else f"{milliseconds:.1f}"
