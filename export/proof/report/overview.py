"""The head of the page: the verdict, the figures that matter most, and what this proof does not show."""

from export.proof.report.document import FILES, NOT_VERIFIED, PASSED
from export.proof.report.figures import count, number, percent, share
from export.proof.report.markup import Html, element
from export.proof.report.sections import Document, section, told_weights


def verdict(document: Document) -> Html:
    passed = document["verdict"] == PASSED
    facts = [element("div", element("dt", name), element("dd", value)) for name, value in _facts(document)]
    return element(
        "header",
        # The name is the caller's to add.
        element("p", " · ".join(["Ferry", "verification", *filter(None, [document.get("name")])]), class_="kicker"),
        element("h1", "Passed" if passed else "Failed", class_="verdict " + ("passed" if passed else "failed")),
        element("p", _passed(document) if passed else _failed(document), class_="summary"),
        element("dl", *facts, class_="facts"),
    )


def _passed(document: Document) -> str:
    parity, task = document["parity"], document["test_split"]
    # Not every backend is asked everything: each kind of input tells how many were.
    asked = [(f"{count(len(parity['cases']), 'input')} of the grid", parity["backends"])]
    for search in document["searches"]:
        asked.append((f"{search['drawn']:,} drawn {told_weights(search)}", search["backends"]))
    asked += [(f"{count(task['rows'], 'row')} of the test split", task["backends"])] if task else []
    told = [f"{inputs} ({count(len(backends), 'backend')})" for inputs, backends in asked]
    limited = sum(part["limit"] is not None for part in parity["backends"])
    others = len(parity["backends"]) - limited
    sentence = (
        f"{count(limited, 'backend')} compute the same function as PyTorch: no answer lies further from float64 than "
        f"PyTorch's own rounding allows, on {', '.join(told[:-1])}{' and ' if told[:-1] else ''}{told[-1]}. "
    )
    if others:
        sentence += (
            f"{others} more, of a precision that is another function by design, keep the accuracy and the laws. "
        )
    return sentence + "No check of the files finds anything wrong."


def _failed(document: Document) -> str:
    failed = {failure["backend"] for failure in document["failures"]} - {FILES}
    unsound = sum(bool(check["problems"] or check["note"]) for check in document["checks"])
    parts = [f"{count(len(failed), 'backend')} of {_asked(document)}"] if failed else []
    parts += [f"{count(unsound, 'check')} of the files"] if unsound else []
    return (
        f"{' and '.join(parts)} failed: {count(len(document['failures']), 'failure')} in all. "
        "These files are not shown to be the model that was trained, and must not be used."
    )


def _asked(document: Document) -> int:
    """Return how many backends were asked; one that did not load has failures only."""
    parts = document["parity"]["backends"] if document["parity"] else []
    names = {part["backend"] for part in parts} | {failure["backend"] for failure in document["failures"]}
    return len(names - {FILES})


def _facts(document: Document) -> list[tuple[str, str]]:
    parity, task, checks = document["parity"], document["test_split"], document["checks"]
    facts = []
    if parity:
        facts.append(("limit on the logits", number(parity["tolerance"]["limit"])))
        parts = [*parity["backends"], *(task["backends"] if task else [])]
        parts += [part for search in document["searches"] for part in search["backends"]]
        used = [(share(part["max_error"], part["limit"]) or 0.0, part["backend"]) for part in parts]
        most, backend = max(used)
        facts.append(("largest share of a limit", f"{percent(most)}, {backend}"))
    if task:
        facts.append(("test accuracy", percent(task["backends"][0]["accuracy"], 2)))
    sound = sum(not check["problems"] and not check["note"] for check in checks)
    facts.append(("checks of the files", f"{sound} of {len(checks)} hold"))
    facts += [(name.upper(), state) for name, state in document["providers"].items()]
    return facts


def open_questions(document: Document) -> Html:
    """Say what this proof does not show."""
    said = [f"{name} was not run: {reason}." for name, reason in document["skipped"].items()]
    said += [
        f"{name.upper()} was not asked for, and nothing is said about it."
        for name, state in document["providers"].items()
        if state == NOT_VERIFIED
    ]
    said += [
        f"The check of the files {check['name']!r} was not made: {check['note']}."
        for check in document["checks"]
        if check["note"]
    ]
    said += [
        f"The search {told_weights(search)} was cut by the clock after {search['drawn']:,} of {search['asked']:,} "
        "inputs."
        for search in document["searches"]
        if search["cut"]
    ]
    if not document["searches"]:
        said.append("No inputs were drawn at random.")
    task = document["test_split"]
    if task and task["undecided"]:
        shown = f"{task['undecided']:,} of {count(task['answers'], 'answer')}"
        said.append(f"Rounding decides {shown} of the test split: the best two labels are too close.")
    if document["parity"] is None:
        said.append("Eager PyTorch itself could not run, so no answer was compared.")
    return section("Not shown here", "", element("ul", *(element("li", sentence) for sentence in said)), id="open")
