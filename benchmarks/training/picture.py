"""The picture of the comparison: the loss of every training, over the tokens that it saw and over the time it took."""

from collections.abc import Mapping
from io import BytesIO
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

_STYLE: Any = {"font.family": "DejaVu Sans", "font.size": 8, "axes.spines.right": False, "axes.spines.top": False}
_OURS, _THEIRS = "tab:blue", "tab:orange"
_DASHES = ("solid", "dashed", "dotted", "dashdot")


def draw_curves(measured: Mapping[str, Any]) -> bytes:
    """Return a PNG of what `measure` gives: ours blue, theirs orange, the loss on validation as a dot at the end."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(9.6, 4.4), layout="constrained")
        by_tokens, by_time = figure.subplots(1, 2, sharey=True)
        drawn = {True: 0, False: 0}
        for training in measured["trainings"]:
            dashes = _DASHES[drawn[training["peer"]] % len(_DASHES)]
            drawn[training["peer"]] += 1
            look = {"color": _THEIRS if training["peer"] else _OURS, "linestyle": dashes}
            _draw(by_tokens, training, 1e-3, look)
            _draw(by_time, training, 1 / training["tokens_per_second"], look)
        by_tokens.set(xlabel="real tokens seen, thousands", ylabel="cross-entropy, nats", title="What is learned")
        by_time.set(xlabel="seconds of training", title="How long it takes")
        for axes in (by_tokens, by_time):
            axes.set_xlim(left=0)
            axes.grid(color="0.92", linewidth=0.6)
        handles, labels = by_tokens.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
        ratio = measured["ratio"]
        figure.suptitle(
            f"{ratio['ours']} against {ratio['peer']}:\n{ratio['median']:.2f} times the tokens per second "
            f"(95 % interval {ratio['low']:.2f} to {ratio['high']:.2f}). Dots: loss on validation.",
            fontsize=8,
        )
        buffer = BytesIO()
        # Without the library's version, the bytes are a function of the measurements.
        figure.savefig(buffer, format="png", dpi=120, metadata={"Software": None})
        return buffer.getvalue()


def _draw(axes: Axes, training: dict[str, Any], scale: float, look: dict[str, Any]) -> None:
    curve = training["curve"]
    label = f"{training['name']}: {training['tokens_per_second']:,} tokens/s"
    axes.plot([tokens * scale for tokens, _ in curve], [loss for _, loss in curve], linewidth=1.2, label=label, **look)
    axes.plot(training["tokens"] * scale, training["validation"]["loss"], "o", markersize=5, color=look["color"])
