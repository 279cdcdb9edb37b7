"""Charts in SVG: every backend's errors against its limit, and the curves of the invariances.

Positions along a scale are percentages, so that charts follow the width of the page and their text does not.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from export.proof.report.figures import number, percent, power_of_ten, share
from export.proof.report.markup import Html, element, join

# Errors this far below the smallest limit are drawn at the edge: they are as good as none.
_DECADES_BELOW = 4
# What the amounts of a law count, where that is not padding.
_UNITS = {"company": "other rows"}
_PLOT = {"left": 34.0, "right": 292.0, "top": 10.0, "bottom": 136.0}
_PLOT_SIZE = (300, 170)


class LogScale:
    """A logarithmic scale over whole decades; zero stands at its lower end."""

    def __init__(self, values: Iterable[float], limits: Iterable[float]) -> None:
        limits = [limit for limit in limits if limit > 0]
        positive = [value for value in values if value > 0] + limits
        highest = max(positive, default=1.0)
        lowest = max(min(positive, default=0.1), min(limits, default=highest) * 10.0**-_DECADES_BELOW)
        self.high = math.ceil(math.log10(highest) + 0.05)
        self.low = min(math.floor(math.log10(lowest)), self.high - 1)

    def place(self, value: float) -> float:
        """Return where a value stands, 0 at the lower end and 1 at the upper."""
        if value <= 0:
            return 0.0
        return min(1.0, max(0.0, (math.log10(value) - self.low) / (self.high - self.low)))

    def ticks(self) -> list[tuple[float, str]]:
        """Return place and text of at most eight decades."""
        step = max(1, math.ceil((self.high - self.low) / 8))
        return [(self.place(10.0**power), power_of_ten(power)) for power in range(self.low, self.high + 1, step)]


def budget(parity: Mapping[str, Any]) -> Html:
    """Draw, for each backend, the spread of its errors over the grid, and its limit."""
    backends = parity["backends"]
    errors = {part["backend"]: sorted(e for e in part["errors"] if isinstance(e, int | float)) for part in backends}
    scale = LogScale((e for own in errors.values() for e in own), (part["limit"] or 0 for part in backends))
    ticks = [
        element("span", text, style=f"left:{100 * place:.2f}%", class_="last" if place == 1 else None)
        for place, text in scale.ticks()
    ]
    axis = element("div", *ticks, class_="ticks")
    rows = [
        element("div", element("span"), axis, element("span", "of limit"), element("span", "failed"), class_="head")
    ]
    for part in backends:
        rows.append(
            element(
                "div",
                element("span", part["backend"], class_="name"),
                _spread(errors[part["backend"]], part, scale),
                element("span", percent(share(part["max_error"], part["limit"])), class_="number"),
                element("span", f"{part['failures']:,}", class_="number beyond" if part["failures"] else "number"),
            )
        )
    return element("div", *rows, class_="budget")


def _spread(errors: Sequence[float], part: Mapping[str, Any], scale: LogScale) -> Html:
    marks = [
        element("line", x1=f"{100 * place:.2f}%", x2=f"{100 * place:.2f}%", y1=0, y2=24, class_="tick")
        for place, _ in scale.ticks()
    ]
    told = f"{part['backend']}: no comparable answer"
    if part["limit"]:
        limit = f"{100 * scale.place(part['limit']):.2f}%"
        marks.insert(0, element("rect", x=limit, y=0, width="100%", height=24, class_="forbidden"))
        marks.append(element("line", x1=limit, x2=limit, y1=0, y2=24, class_="limit"))
    if errors:
        least, quarter, middle, upper, most = (
            100 * scale.place(errors[round(at * (len(errors) - 1))]) for at in (0, 0.25, 0.5, 0.75, 1)
        )
        kind = "worst beyond" if part["limit"] and errors[-1] > part["limit"] else "worst"
        marks += [
            element("line", x1=f"{least:.2f}%", x2=f"{most:.2f}%", y1=12, y2=12, class_="range"),
            element("rect", x=f"{quarter:.2f}%", y=7, width=f"{upper - quarter:.2f}%", height=10, class_="half"),
            element("line", x1=f"{middle:.2f}%", x2=f"{middle:.2f}%", y1=5, y2=19, class_="median"),
            element("circle", cx=f"{most:.2f}%", cy=12, r=3.5, class_=kind),
        ]
        told = (
            f"{part['backend']}: median {number(errors[len(errors) // 2])}, largest {number(errors[-1])} "
            f"at {part['worst_case']}, limit {number(part['limit'])}"
        )
    return element(
        "svg", element("title", told), *marks, role="img", height=24, width="100%", preserveAspectRatio="none"
    )


def families(invariances: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Number the families of backends, which share a colour: the word before the first hyphen."""
    names = dict.fromkeys(part["backend"].split("-")[0] for part in invariances)
    return {name: index % 5 for index, name in enumerate(names)}


def curves(invariances: Sequence[Mapping[str, Any]]) -> Html:
    """Draw a small chart for each law that has amounts: the difference over the amount, a line for each backend."""
    values = [point["difference"] or 0.0 for part in invariances for point in part["curve"]]
    scale = LogScale(values, (part["limit"] for part in invariances))
    colours = families(invariances)
    plots = []
    for law in dict.fromkeys(part["law"] for part in invariances):
        parts = [part for part in invariances if part["law"] == law]
        amounts = sorted({point["amount"] for part in parts for point in part["curve"]})
        if len(amounts) > 1:
            plots.append(element("figure", element("figcaption", law), _plot(parts, amounts, scale, colours)))
    names = [
        element("span", element("i", class_=f"stroke family{colour}"), family) for family, colour in colours.items()
    ]
    key = element("p", *names, element("span", element("i", class_="stroke dashed"), "limit"), class_="legend")
    return join([element("div", *plots, class_="plots"), key])


def _plot(
    parts: Sequence[Mapping[str, Any]], amounts: Sequence[int], scale: LogScale, colours: Mapping[str, int]
) -> Html:
    left, right, top, bottom = _PLOT["left"], _PLOT["right"], _PLOT["top"], _PLOT["bottom"]

    def across(amount: int) -> float:
        return left + (right - left) * amounts.index(amount) / (len(amounts) - 1)

    def up(value: float) -> float:
        return bottom - (bottom - top) * scale.place(value)

    marks = []
    for place, text in scale.ticks():
        height = bottom - (bottom - top) * place
        marks.append(element("line", x1=left, x2=right, y1=f"{height:.1f}", y2=f"{height:.1f}", class_="tick"))
        # Zero has no logarithm; it stands where the scale ends.
        marks.append(element("text", text if place else "0", x=left - 5, y=f"{height + 3.5:.1f}", class_="upright"))
    step = max(1, math.ceil(len(amounts) / 7))
    for index, amount in enumerate(amounts):
        if index == len(amounts) - 1 or (index % step == 0 and len(amounts) - 1 - index >= step):
            marks.append(element("text", f"{amount}", x=f"{across(amount):.1f}", y=bottom + 15, class_="along"))
    unit = _UNITS.get(parts[0]["law"], "columns of padding")
    marks.append(element("text", unit, x=(left + right) / 2, y=bottom + 31, class_="along unit"))
    for limit in sorted({part["limit"] for part in parts}):
        marks.append(element("line", x1=left, x2=right, y1=f"{up(limit):.1f}", y2=f"{up(limit):.1f}", class_="limit"))
    for part in parts:
        # A difference that is no number, as between two shapes, lies above everything.
        points = [
            (across(point["amount"]), top if point["difference"] is None else up(point["difference"]))
            for point in part["curve"]
        ]
        told = f"{part['backend']}: largest difference {number(part['max_difference'])}, limit {number(part['limit'])}"
        marks.append(
            element(
                "polyline",
                element("title", told),
                points=" ".join(f"{x:.1f},{y:.1f}" for x, y in points),
                class_=f"family{colours[part['backend'].split('-')[0]]}",
            )
        )
    size = f"0 0 {_PLOT_SIZE[0]} {_PLOT_SIZE[1]}"
    return element("svg", *marks, viewBox=size, role="img", aria_label=parts[0]["law"])
