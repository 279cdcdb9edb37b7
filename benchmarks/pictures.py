"""The pictures of `make bench`: latency by batch × length × fill, and accuracy against speed of the precisions."""

from collections.abc import Mapping, Sequence
from io import BytesIO
from itertools import cycle
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import NullLocator

from benchmarks.inference.describe import title_of
from benchmarks.inference.measure import FLOOR, SORTED
from benchmarks.inference.ours import INT8
from benchmarks.inference.peers import PEERS

_STYLE: Any = {"font.family": "DejaVu Sans", "font.size": 8, "axes.titlesize": 9}
_OURS, _OURS_INT8, _PEER, _BESIDE, _FLOOR = "#0b6e99", "#7a4fb5", "#b9bec4", "#e3c9a4", "#d1495b"
# In points of accuracy, above and below: the budget of int8.
_LEAST_SPAN = 0.5
_FILL_TITLES = {"full": "no padding", "half": "half padding"}


def draw_latencies(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Draw one panel a shape and fill, bars for the candidates, the floor as a line; returns a PNG.

    Args:
        rows: candidate, batch, length, fill and median_ms each.
    """
    fills = list(dict.fromkeys(row["fill"] for row in rows))
    shapes = list(dict.fromkeys((row["batch"], row["length"]) for row in rows))
    names = _order(list(dict.fromkeys(row["candidate"] for row in rows)))
    with mpl.rc_context(_STYLE):
        size = (1.9 * len(shapes) + 2.4, len(fills) * (0.19 * len(names) + 0.6) + 0.7)
        figure = Figure(figsize=size, layout="constrained")
        grid = figure.subplots(len(fills), len(shapes), squeeze=False, sharey=True)
        for line, fill in zip(grid, fills, strict=True):
            for axes, shape in zip(line, shapes, strict=True):
                medians = {
                    row["candidate"]: row["median_ms"]
                    for row in rows
                    if (row["batch"], row["length"], row["fill"]) == (*shape, fill)
                }
                _draw_panel(axes, names, medians)
                axes.set_title(f"{shape[0]} × {shape[1]}, {_FILL_TITLES.get(fill, fill)}")
            _colour_labels(line[0], names)
        figure.suptitle("Milliseconds for one answer, batch × length; shorter is better", fontsize=10)
        figure.supxlabel("red line: the matrix products alone in float32", fontsize=8, color=_FLOOR)
        return _save(figure)


def draw_precisions(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Draw accuracy over latency, one point a precision; returns a PNG.

    Args:
        rows: name, accuracy (0 … 1) and latency (milliseconds) each.
    """
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(6.6, 3.2), layout="constrained")
        axes = figure.add_subplot()
        # One after another, so that points of one accuracy do not hide each other.
        for row, marker in zip(rows, cycle("oDs^vP"), strict=False):
            accuracy = 100 * row["accuracy"]
            axes.scatter(
                row["latency"],
                accuracy,
                s=52,
                marker=marker,
                color=_OURS_INT8 if row["name"].startswith("int8") else _OURS,
                label=f"{row['name']}: {accuracy:.2f} %, {row['latency']:.2f} ms",
                zorder=3,
            )
        accuracies = [100 * row["accuracy"] for row in rows]
        # Not less than what int8 may lose, or rounding would look like a loss.
        axes.set_ylim(min(accuracies) - _LEAST_SPAN, max(accuracies) + _LEAST_SPAN)
        axes.set_xlim(0, 1.1 * max(row["latency"] for row in rows))
        axes.set(xlabel="milliseconds for one batch; further left is faster", ylabel="accuracy on the test split, %")
        axes.grid(color="0.92", zorder=0)
        axes.spines[["right", "top"]].set_visible(False)
        axes.set_title("What a precision costs, and what it saves")
        figure.legend(loc="outside right center", frameon=False)
        return _save(figure)


def _order(names: Sequence[str]) -> list[str]:
    """Ours first, then the peers in the order of their table; sorted forms and the floor are no bars."""
    bars = [name for name in names if name != FLOOR and SORTED not in name]
    peers = list(PEERS)
    return sorted(bars, key=lambda name: peers.index(name) if name in PEERS else -1)


def _draw_panel(axes: Axes, names: Sequence[str], medians: Mapping[str, float]) -> None:
    shown = {name: medians[name] for name in names if name in medians}
    longest = max(shown.values())
    places = {name: len(names) - 1 - place for place, name in enumerate(names)}
    axes.barh([places[name] for name in shown], list(shown.values()), 0.74, color=[_colour(name) for name in shown])
    for name, value in shown.items():
        text = f"{value:.1f}" if value < 100 else f"{value:.0f}"
        label = axes.text(value + 0.02 * longest, places[name], text, va="center", color="0.25", fontsize=7)
        # Over the line of the floor it stays readable.
        label.set_path_effects([withStroke(linewidth=2, foreground="white")])
    if FLOOR in medians:
        axes.axvline(medians[FLOOR], color=_FLOOR, linewidth=1, zorder=2)
    axes.set(xlim=(0, 1.22 * longest), ylim=(-0.6, len(names) - 0.4))
    axes.set_yticks(list(places.values()), [title_of(name) for name in places])
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_locator(NullLocator())
    axes.spines[["right", "top", "bottom"]].set_visible(False)


def _colour_labels(axes: Axes, names: Sequence[str]) -> None:
    for label, name in zip(axes.get_yticklabels(), names, strict=True):
        label.set_color("0.25" if name in PEERS else _colour(name))
        label.set_fontweight("normal" if name in PEERS else "bold")


def _colour(name: str) -> str:
    if name in PEERS:
        return _BESIDE if PEERS[name].beside else _PEER
    return _OURS_INT8 if name.startswith(INT8) else _OURS


def _save(figure: Figure) -> bytes:
    buffer = BytesIO()
    # Without the library's version, the bytes are a function of the measurements.
    figure.savefig(buffer, format="png", dpi=150, metadata={"Software": None})
    return buffer.getvalue()
