"""The parts of the page, each from verification.json; a part without anything to tell is empty."""

from collections.abc import Mapping, Sequence
from typing import Any

from export.proof.report import charts
from export.proof.report.figures import NOTHING, count, number, percent, share
from export.proof.report.markup import Html, element, table
from export.proof.tolerance import ERROR_FACTOR, FLOOR_ROUNDINGS

Document = Mapping[str, Any]
# Long lists are folded: the first lines are seen at once.
FOLDED = 8


def section(title: str, lead: str, *content: str, id: str | None = None) -> Html:
    return element(
        "section", element("h2", title), element("p", lead, class_="lead") if lead else Html(), *content, id=id
    )


def code(text: str, *, id: str | None = None) -> Html:
    """Build a block of code with a button that copies it."""
    button = element("button", "Copy", type="button", class_="copy")
    return element("div", element("pre", element("code", text), tabindex=0, id=id), button, class_="code")


def example_id(index: int) -> str:
    return f"counterexample-{index}"


def counterexamples(document: Document) -> Html:
    examples = document["counterexamples"]
    if not examples:
        return Html()
    return section(
        "The smallest failing inputs",
        "One for each backend that fails: shrunk until no smaller batch or sequence fails, then followed through the "
        "file's own values to the first layer that leaves its limit.",
        *(_counterexample(example, example_id(index), unfolded=index == 0) for index, example in enumerate(examples)),
    )


def _counterexample(example: Document, id: str, *, unfolded: bool) -> Html:
    case, culprit = example["case"], example["culprit"]
    found = "none was found: no value inside the file lies beyond its limit"
    guilty = element("dd", found)
    if culprit:
        found = culprit["module"]
        distance = "no comparable value" if culprit["distance"] is None else f"error {number(culprit['distance'])}"
        words = f", operator {culprit['operator']}: {distance}, limit {number(culprit['budget'])}"
        guilty = element("dd", element("code", found), words)
    shape = f"batch {case['batch']}, sequence {case['length']}"
    told = f"{shape}, made of {example['origin']}" + ("" if example["smallest"] else "; smaller ones may fail too")
    facts = [
        element("div", element("dt", "input"), element("dd", told)),
        element("div", element("dt", "what happened"), element("dd", example["reason"])),
        element("div", element("dt", "first guilty layer"), guilty),
    ]
    story = element(
        "div", element("dl", *facts, class_="story-facts"), code(example["reproduction"]), class_="story", id=id
    )
    layer = element("code", found) if culprit else element("span", "no guilty layer")
    summary = element("summary", element("b", example["backend"]), layer, element("span", shape))
    return element("article", element("details", summary, story, open="" if unfolded else None))


def budget(document: Document) -> Html:
    parity = document["parity"]
    if parity is None:
        return Html()
    rows = [
        [
            part["backend"],
            number(part["max_error"]),
            number(part["limit"]),
            number(part["distances"]["p99"]),
            number(part["distances"]["max_rel"]),
            f"{part['distances']['cosine']:.9g}",
            percent(part["distances"]["argmax_agreement"], 2),
            part["worst_case"],
        ]
        for part in parity["backends"]
    ]
    head = ["backend", "max error", "limit", "99 % within", "relative", "cosine", "same label", "worst input"]
    return section(
        "Error against the float64 budget",
        "For each backend the spread of its errors in logits over the grid: all of them, the middle half, the median, "
        f"and the largest as a dot. The line is the limit, {_derivation(parity['tolerances'])}.",
        charts.budget(parity),
        table(head, rows, numbers=range(1, 7)),
    )


def _derivation(tolerances: Mapping[str, Document]) -> str:
    return "; ".join(
        f"{number(tolerance['limit'])} for {precision}: {ERROR_FACTOR:g} times the error of eager PyTorch, "
        f"{number(tolerance['eager_error'])}, and {FLOOR_ROUNDINGS:g} roundings at {number(tolerance['largest_logit'])}"
        for precision, tolerance in tolerances.items()
    )


def invariances(document: Document) -> Html:
    parts = document["invariances"]
    if not parts:
        return Html()
    laws = list(dict.fromkeys(part["law"] for part in parts))
    found = {(part["backend"], part["law"]): part for part in parts}
    rows = []
    for backend in dict.fromkeys(part["backend"] for part in parts):
        own = [found[backend, law] for law in laws]
        worst = max(own, key=lambda part: share(part["max_difference"], part["limit"]) or 0.0)
        rows.append([backend, *(_judged(part["max_difference"], part) for part in own), worst["worst"]])
    return section(
        "Invariance to padding, company and order",
        "One row, told in other ways, must get one answer: with more padding on either side or between its tokens, "
        "alone or beside other rows, in another order. Largest difference in logits over the amount of change.",
        charts.curves(parts),
        table(["backend", *laws, "worst"], rows, numbers=range(1, len(laws) + 1)),
    )


def searches(document: Document) -> Html:
    found = document["searches"]
    if not found:
        return Html()
    backends = dict.fromkeys(part["backend"] for search in found for part in search["backends"])
    rows = []
    for backend in backends:
        row = [backend]
        for search in found:
            part = next((part for part in search["backends"] if part["backend"] == backend), None)
            row += (
                [_judged(part["max_error"], part), percent(share(part["max_error"], part["limit"]))]
                if part
                else [""] * 2
            )
        worst = next((part["worst_case"] for part in found[0]["backends"] if part["backend"] == backend), None)
        rows.append([*row, worst or NOTHING])
    drawn = [f"{search['drawn']:,} {told_weights(search)}" for search in found]
    errors = ["max error" if search["scale"] == 1 else f"weights × {search['scale']:g}" for search in found]
    head = ["backend", *(cell for error in errors for cell in (error, "of limit")), "worst input"]
    return section(
        "Search for worse inputs",
        f"Drawn at random and steered towards the largest error, seed {document['effort']['seed']}: "
        f"{', '.join(drawn)}. Larger weights make larger activations, against a limit derived anew.",
        table(head, rows, numbers=range(1, len(head) - 1)),
    )


def test_split(document: Document) -> Html:
    task = document["test_split"]
    if task is None:
        return Html()
    rows = [
        [
            part["backend"],
            percent(part["accuracy"], 2),
            f"{part['labels_equal_to_eager']:,}",
            _judged(part["max_error"], part),
            percent(share(part["max_error"], part["limit"])),
        ]
        for part in task["backends"]
    ]
    return section(
        "The test split",
        f"{count(task['rows'], 'row')}, {count(task['answers'], 'answer')}, real texts at the length they have. "
        f"Too close to call: {task['undecided']:,}.",
        table(["backend", "accuracy", "labels as eager", "max error", "of limit"], rows, numbers=range(1, 5)),
    )


def precisions(document: Document) -> Html:
    """Lay files of several precisions side by side."""
    parts = document["precisions"]
    if len(parts) < 2:
        return Html()
    rows = [
        [
            element("code", part["file"]),
            part["precision"],
            percent(part["accuracy"], 2),
            percent(part["macro_f1"], 2),
            f"{100 * part['lost']:+.2f}",
            NOTHING if part["budget"] is None else f"{100 * part['budget']:g}",
            number(part["invariance"]),
            f"{part['bytes'] / 1e6:.2f}",
        ]
        for part in parts
    ]
    head = ["file", "precision", "accuracy", "macro-F1", "points lost", "budget", "invariance", "MB"]
    return section(
        "Precisions",
        "What each ONNX file keeps of the test split, and what it weighs. Points are lost against eager PyTorch; where "
        "there is no budget, each label is compared instead. Invariance is the largest difference, in logits, between "
        "two answers to one row. Latency depends on the machine: benchmarks measure it, not a proof.",
        table(head, rows, numbers=range(2, 8)),
    )


def placement(document: Document) -> Html:
    parts = document["placement"]
    if not parts:
        return Html()
    rows = [
        [
            part["backend"],
            part["provider"],
            f"{part['nodes']:,}",
            f"{part['float_nodes']:,}",
            f"{len(part['integer_nodes_on_cpu']):,}",
            ", ".join(f"{name} = {value}" for name, value in part["options"].items()) or NOTHING,
            "holds" if not part["faults"] else element("span", count(len(part["faults"]), "fault"), class_="beyond"),
        ]
        for part in parts
    ]
    lists = [
        _folded(f"{part['backend']}: integer nodes on the CPU", part["integer_nodes_on_cpu"])
        for part in parts
        if part["integer_nodes_on_cpu"]
    ]
    return section(
        "Where the nodes ran",
        "Every node that yields a float tensor must run on the provider asked for. Integer arithmetic on shapes may "
        "run on the CPU, and is listed.",
        table(
            ["backend", "provider", "nodes", "float", "integer on the CPU", "options", "rule"], rows, numbers=(2, 3, 4)
        ),
        *lists,
    )


def checks(document: Document) -> Html:
    entries = [_check(check) for check in document["checks"]]
    return section("What the files say of themselves", "", element("ul", *entries, class_="checks"))


def _check(check: Document) -> Html:
    name = element("span", check["name"])
    if check["problems"]:
        return element("li", name, element("ul", *(element("li", told) for told in check["problems"])), class_="bad")
    if check["note"]:
        return element("li", name, element("p", f"Not made: {check['note']}"), class_="unmade")
    return element("li", name, class_="good")


def failures(document: Document) -> Html:
    """List every failure, folded by backend."""
    found: dict[str, list[str]] = {}
    for failure in document["failures"]:
        found.setdefault(failure["backend"], []).append(f"{failure['where']}: {failure['reason']}")
    if not found:
        return Html()
    lists = [_folded(f"{backend}: {count(len(lines), 'failure')}", lines) for backend, lines in found.items()]
    return section("Every failure", "", *lists, id="failures")


def provenance(document: Document) -> Html:
    inputs = document.get("inputs", {})
    hashes = [[name, element("code", digest)] for name, digest in sorted(inputs.get("files", {}).items())]
    others = {
        "test_split": "test split",
        "calibration": "rows of calibration",
        "record": "record of training",
        "source": "source code of the proof",
    }
    hashes += [[told, element("code", inputs[key])] for key, told in others.items() if key in inputs]
    versions = [[name, version] for name, version in sorted(document["versions"].items())]
    return section(
        "Versions and hashes",
        "SHA-256 of everything that was judged. This page is made of verification.json and holds no clock value.",
        table(["library", "version"], versions),
        table(["file", "SHA-256"], hashes, class_="hashes") if hashes else Html(),
    )


def _judged(value: float | None, part: Document) -> str:
    """Write the largest value of a part; where it does not show why the part failed, how often it did."""
    if not part["failures"]:
        return number(value)
    shows = value is not None and part["limit"] is not None and value > part["limit"]
    return element("span", number(value) if shows else f"{part['failures']:,} failed", class_="beyond")


def told_weights(search: Document) -> str:
    return "on the model as it is" if search["scale"] == 1 else f"with weights × {search['scale']:g}"


def _folded(title: str, lines: Sequence[str]) -> Html:
    body = element("ul", *(element("li", line) for line in lines))
    return element("details", element("summary", title), body, open="" if len(lines) <= FOLDED else None)
