"""Two pictures of an evaluation, PNG, the same bytes for the same answers: confusions, and reliability."""

from functools import cache
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, get_font
from matplotlib.ft2font import FT2Font

from pipeline.calibration import Bin, reliability
from pipeline.evaluation import Answers

# More labels than this can't be read on a page; then the ones with the most mistakes are shown.
MOST_LABELS = 60
_FONT = "DejaVu Sans"
_STYLE: Any = {"font.family": _FONT}
_LONGEST_LABEL = 28


def draw_confusion(path: Path, answers: Answers, labels: list[str]) -> None:
    """Draw a heat map: rows are the labels expected, columns those given, each row's shares add up to 1."""
    shown = _labels_to_show(answers, len(labels))
    place = np.full(len(labels), -1)
    place[shown] = np.arange(len(shown))
    rows, columns = place[answers.expected], place[answers.given]
    inside = (rows >= 0) & (columns >= 0)
    counts = np.zeros((len(shown), len(shown)))
    np.add.at(counts, (rows[inside], columns[inside]), 1)
    totals = np.bincount(answers.expected, minlength=len(labels))[shown]
    shares = counts / np.maximum(totals, 1)[:, None]

    side = 3.2 + 0.22 * len(shown)
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(side + 0.8, side), layout="constrained")
        axes = figure.add_subplot()
        image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        names = [_name(labels[index], index) for index in shown]
        axes.set_xticks(range(len(shown)), names, rotation=90, fontsize=7)
        axes.set_yticks(range(len(shown)), [f"{name} ({n})" for name, n in zip(names, totals, strict=True)], fontsize=7)
        axes.set_xlabel("label given")
        axes.set_ylabel("label expected (in brackets, how often)")
        what = "labels" if len(shown) == len(labels) else f"of {len(labels)} labels, those with the most mistakes"
        axes.set_title(f"Answers of the test split by label, {len(shown)} {what}", fontsize=9)
        if len(shown) <= 20:
            for (row, column), count in np.ndenumerate(counts):
                if count:
                    colour = "white" if shares[row, column] > 0.5 else "black"
                    axes.text(column, row, f"{int(count)}", ha="center", va="center", fontsize=7, color=colour)
        figure.colorbar(image, ax=axes, shrink=0.7, label="share of the expected label's answers")
        _save(figure, path)


def _labels_to_show(answers: Answers, size: int) -> Any:
    """Return label indices in order: all, or those that take part in the most mistakes."""
    if size <= MOST_LABELS:
        return np.arange(size)
    wrong = ~answers.correct
    mistakes = np.bincount(answers.expected[wrong], minlength=size) + np.bincount(answers.given[wrong], minlength=size)
    return np.sort(np.argsort(-mistakes, kind="stable")[:MOST_LABELS])


def draw_reliability(path: Path, answers: Answers, *, temperature: float) -> None:
    """Draw accuracy over confidence before and after the temperature, and how many answers stand in each bin."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(5.2, 5.6), layout="constrained")
        top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[4, 1])
        top.plot([0, 1], [0, 1], color="0.7", linewidth=1, label="probabilities that mean what they say")
        before = reliability(answers.raw_confidence, answers.correct)
        after = reliability(answers.confidence, answers.correct)
        for bins, colour, marker, name in (
            (before, "tab:orange", "s", "without the temperature"),
            (after, "tab:blue", "o", f"with temperature {temperature:.3g}"),
        ):
            top.plot(
                [row.confidence for row in bins],
                [row.accuracy for row in bins],
                color=colour,
                marker=marker,
                markersize=4,
                linewidth=1,
                label=f"{name}: error {100 * _error(bins):.2f} %",
            )
        top.set(ylabel="accuracy", xlim=(0, 1), ylim=(0, 1.02))
        top.set_title(f"Calibration on the {len(answers.given):,} answers of the test split", fontsize=9)
        top.legend(fontsize=8, loc="upper left")
        bottom.bar(
            [row.low for row in after],
            [row.share for row in after],
            width=[row.high - row.low for row in after],
            align="edge",
            color="tab:blue",
            edgecolor="white",
        )
        bottom.set(xlabel="probability of the label given", ylabel="share, with it")
        _save(figure, path)


def _error(bins: list[Bin]) -> float:
    return sum(abs(row.accuracy - row.confidence) * row.share for row in bins)


def _name(label: str, index: int) -> str:
    """Return a label as it is drawn: long ones without their middle, by number where the font lacks a character."""
    if any(not _font().get_char_index(ord(character)) for character in label):
        return f"label {index}"
    half = _LONGEST_LABEL // 2
    text = label if len(label) <= _LONGEST_LABEL else f"{label[:half]}…{label[-half + 1 :]}"
    # A dollar sign would begin a formula.
    return text.replace("$", r"\$")


@cache
def _font() -> FT2Font:
    return get_font(findfont(_FONT))


def _save(figure: Figure, path: Path) -> None:
    # Without the library's version, the bytes are a function of the answers.
    figure.savefig(path, format="png", dpi=110, metadata={"Software": None})
