"""verification.json as one HTML page that needs nothing else: no network, no fonts, no files beside it."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

from export.proof.report import overview, sections
from export.proof.report.heatmap import heatmap, legend
from export.proof.report.markup import Html, element, escape
from export.proof.report.rebuild import BACKEND, CASE, REBUILD

_ASSETS = Path(__file__).parent


def page(document: Mapping[str, Any]) -> str:
    """Render a page from verification.json and from nothing else: the same document gives the same bytes."""
    body = element(
        "main",
        overview.verdict(document),
        overview.open_questions(document),
        sections.counterexamples(document),
        _grid(document),
        sections.budget(document),
        sections.invariances(document),
        sections.searches(document),
        sections.test_split(document),
        sections.precisions(document),
        sections.placement(document),
        sections.checks(document),
        sections.failures(document),
        sections.provenance(document),
    )
    return Template(_asset("page.html")).substitute(
        title=escape(f"Verification {document['verdict']}"),
        style=_asset("page.css"),
        script=_asset("page.js"),
        body=body + _dialog(),
        data=_data(document),
    )


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text("utf-8")


def _grid(document: Mapping[str, Any]) -> Html:
    parity = document["parity"]
    if parity is None:
        return Html()
    return sections.section(
        "Every input of the grid",
        "A cell is one input: a batch of one size, sequence length and mask, answered by one backend and compared with "
        "eager PyTorch in float64. Its shade is the share of the limit that the largest error in logits uses. Hover "
        "over a cell, or walk with the arrow keys, for the number; open a failing one for its story.",
        legend(),
        heatmap(parity, _failed(document)),
        element("p", id="reading", class_="reading", aria_live="polite"),
    )


def _failed(document: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return the reasons of the grid's failures by backend and name of the case."""
    names = {case["name"] for case in document["parity"]["cases"]}
    failed: dict[str, dict[str, str]] = {}
    for failure in document["failures"]:
        if failure["where"] in names:
            failed.setdefault(failure["backend"], {})[failure["where"]] = failure["reason"]
    return failed


def _data(document: Mapping[str, Any]) -> str:
    """Return what the script reads, as JSON that can't end its element."""
    parity = document["parity"]
    data: dict[str, Any] = {"cases": [], "backends": []}
    if parity is not None:
        failed = _failed(document)
        data["cases"] = [case["name"] for case in parity["cases"]]
        data["backends"] = [
            {
                "name": part["backend"],
                "limit": part["limit"],
                "errors": part["errors"],
                "reasons": failed.get(part["backend"], {}),
                "example": _example(document["counterexamples"], part["backend"]),
            }
            for part in parity["backends"]
        ]
        data["rebuild"] = {"text": REBUILD, "backend": BACKEND, "case": CASE}
    return json.dumps(data, ensure_ascii=True, separators=(",", ":")).replace("<", "\\u003c")


def _example(examples: Sequence[Mapping[str, Any]], backend: str) -> str | None:
    """Return the id of the element that tells of a backend's counterexample."""
    ids = (sections.example_id(index) for index, example in enumerate(examples) if example["backend"] == backend)
    return next(ids, None)


def _dialog() -> Html:
    """Build the window that a failing cell opens; the script fills it."""
    return element(
        "dialog",
        element("button", "Close", type="button", class_="close", id="close"),
        element("h2", id="detail-title"),
        element("p", id="detail-reason", class_="reason"),
        element("div", id="detail-example"),
        element(
            "div",
            element("h3", "This very input, built again"),
            sections.code("", id="detail-rebuild"),
        ),
        id="detail",
        aria_labelledby="detail-title",
    )
