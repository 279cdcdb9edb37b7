"""The picture of the tolerance study: every ratio to the limit, correct backends above, planted faults below."""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.results import write_result
from benchmarks.tolerance_study import Measurement, backend_ratios, fault_ratios

_STYLE: Any = {"font.family": "DejaVu Sans", "font.size": 8}
_GOOD, _BAD, _LIMIT = "tab:blue", "tab:red", "black"
# Decades of the ratio that are shown, and bars in each; what lies outside stands at the edge.
_DECADES = (-2, 5)
_BARS = 10


def draw_ratios(path: Path, measurements: Sequence[Measurement]) -> None:
    """Draw one row of bars for each backend and each fault over the ratio of its error to the limit."""
    rows = [
        *((name, ratios, _GOOD, f"largest {max(ratios):.2f}") for name, ratios in backend_ratios(measurements).items()),
        *((name, ratios, _BAD, _share(ratios)) for name, ratios in fault_ratios(measurements).items()),
    ]
    edges = np.logspace(*_DECADES, (_DECADES[1] - _DECADES[0]) * _BARS + 1)
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(8.4, 0.36 * len(rows) + 1.6), layout="constrained")
        axes = figure.add_subplot()
        for place, (_, ratios, colour, remark) in enumerate(reversed(rows)):
            _draw_row(axes, place, ratios, edges, colour)
            axes.text(edges[-1] * 1.15, place + 0.12, remark, va="bottom", color=colour)
        axes.set_yticks([place + 0.3 for place in range(len(rows))], [row[0] for row in reversed(rows)])
        for label, row in zip(axes.get_yticklabels(), reversed(rows), strict=True):
            label.set_color(row[2])
        axes.axvspan(edges[0], 1.0, color="0.96", zorder=-1)
        axes.axvline(1.0, color=_LIMIT, linewidth=1)
        axes.text(1.0, len(rows) + 0.1, "the limit", ha="center", va="bottom")
        axes.set(xscale="log", xlim=(edges[0], edges[-1]), ylim=(-0.15, len(rows) + 0.05))
        axes.set_xlabel("error against float64, as a multiple of the limit")
        axes.tick_params(axis="y", length=0)
        axes.spines[["left", "right", "top"]].set_visible(False)
        figure.suptitle(
            f"Correct backends (blue) and planted faults (red) of {len(measurements)} models against the limit",
            fontsize=9,
        )
        _save(figure, path)


def _draw_row(axes: Axes, place: int, ratios: Sequence[float], edges: Any, colour: str) -> None:
    counts, _ = np.histogram(np.clip(ratios, edges[0], edges[-1]), edges)
    heights = 0.85 * counts / counts.max()
    axes.bar(edges[:-1], heights, np.diff(edges), bottom=place, align="edge", color=colour, linewidth=0)
    axes.axhline(place, color="0.85", linewidth=0.6, zorder=0)


def _share(ratios: Sequence[float]) -> str:
    return f"{100 * sum(ratio > 1 for ratio in ratios) / len(ratios):.1f} % refused"


def _save(figure: Figure, path: Path) -> None:
    buffer = BytesIO()
    # Without the library's version, the bytes are a function of the measurements.
    figure.savefig(buffer, format="png", dpi=120, metadata={"Software": None})
    write_result(path, buffer.getvalue())
