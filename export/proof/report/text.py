"""A proof as text for a terminal of 100 columns: what was measured, what is wrong, and last the verdict."""

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence

from export.proof.checks import CheckResult
from export.proof.explain import Counterexample, describe
from export.proof.invariance import LAWS, Invariance
from export.proof.parity import Failure, Parity
from export.proof.placement import Placement
from export.proof.precision_table import PrecisionRow
from export.proof.prove import Proof
from export.proof.report.document import FILES, provider_states, verdict
from export.proof.search import Search
from export.proof.task_metrics import TaskMetrics
from export.proof.tolerance import ERROR_FACTOR, FLOOR_ROUNDINGS, Tolerance

WIDTH = 100
# Of the failures of one backend so many are shown: they repeat each other. verification.json has all.
MOST_FAILURES = 3


def text(proof: Proof) -> str:
    """Write the report; the last line is the verdict."""
    parts = [
        *(_parity(proof.parity) if proof.parity else ()),
        *(_invariances(proof.invariances) if proof.invariances else ()),
        *(_searches(proof.searches) if proof.searches else ()),
        *(_task(proof.task) if proof.task else ()),
        *_precisions(proof.precisions),
        *(_placements(proof.placements) if proof.placements else ()),
        *_checks(proof),
        *_skipped(proof.skipped),
        *_failures(proof.all_failures),
        *_counterexamples(proof.counterexamples),
        _verdict(proof),
    ]
    return "\n".join(parts)


def _parity(grid: Parity) -> list[str]:
    title = f"Parity with eager in float64, {len(grid.cases)} inputs of the grid"
    rows = [
        [
            part.backend,
            _number(part.max_error),
            _share(part.max_error, part.limit),
            _number(part.distances.p99),
            f"{100 * part.distances.argmax_agreement:.4g} %",
            part.worst_case,
            str(len(part.failures)),
        ]
        for part in grid.backends
    ]
    head = ["backend", "max error", "used", "p99", "argmax", "worst input", "failed"]
    return [_heading(title, grid.tolerances), _table(head, rows)]


def _invariances(invariances: Sequence[Invariance]) -> list[str]:
    """Lay out backends against laws."""
    found = {(part.backend, part.law): part for part in invariances}
    rows = []
    for backend in dict.fromkeys(part.backend for part in invariances):
        parts = [found[backend, law] for law in LAWS if (backend, law) in found]
        rows.append(
            [
                backend,
                *(_number(part.max_difference) for part in parts),
                max((_share(part.max_difference, part.limit) for part in parts), key=_as_number),
                str(sum(len(part.failures) for part in parts)),
            ]
        )
    title = "Invariance: the largest difference between two answers to one row, told in other ways"
    laws = [law.removesuffix(" padding") for law in LAWS]
    return [title, _table(["backend", *laws, "used", "failed"], rows)]


def _searches(searches: Sequence[Search]) -> list[str]:
    parts = []
    for search in searches:
        weights = "the model as it is" if search.scale == 1 else f"weight matrices times {search.scale:g}"
        cut = f", cut by the clock; {search.asked} were asked for" if search.cut else ""
        rows = [
            [
                part.backend,
                _number(part.max_error),
                _share(part.max_error, part.limit),
                part.worst.name if part.worst else "-",
                str(len(part.failures)),
            ]
            for part in search.backends
        ]
        parts.append(f"Search, {weights}: {search.drawn} inputs drawn{cut}")
        parts.append(_table(["backend", "max error", "used", "worst input", "failed"], rows))
    return parts


def _task(task: TaskMetrics) -> list[str]:
    title = f"Test split, {task.rows} rows, {task.answers} answers, {task.undecided} of them too close to call"
    rows = [
        [
            part.backend,
            f"{100 * part.accuracy:.2f} %",
            str(part.equal_labels),
            _number(part.max_error),
            _share(part.max_error, part.limit),
            str(len(part.failures)),
        ]
        for part in task.backends
    ]
    head = ["backend", "accuracy", "labels as eager", "max error", "used", "failed"]
    return [_heading(title, task.tolerances), _table(head, rows)]


def _precisions(precisions: Sequence[PrecisionRow]) -> list[str]:
    """Lay files side by side, where there is more than one."""
    if len(precisions) < 2:
        return []
    rows = [
        [
            row.file,
            row.precision,
            f"{100 * row.accuracy:.2f} %",
            f"{100 * row.macro_f1:.2f} %",
            f"{100 * row.lost:+.2f}",
            "-" if row.budget is None else f"{100 * row.budget:g}",
            _number(row.invariance),
            f"{row.bytes / 1e6:.2f}",
        ]
        for row in precisions
    ]
    head = ["file", "precision", "accuracy", "macro-F1", "points lost", "budget", "invariance", "MB"]
    return ["Precisions, on the test split", _table(head, rows)]


def _placements(placements: Mapping[str, Placement]) -> list[str]:
    rows = [
        [
            name,
            placement.provider.removesuffix("ExecutionProvider"),
            str(placement.nodes),
            str(placement.float_nodes),
            str(len(placement.integer_nodes)),
            ", ".join(f"{key}={value}" for key, value in placement.options.items()) or "-",
            str(len(placement.faults)),
        ]
        for name, placement in placements.items()
    ]
    head = ["backend", "provider", "nodes", "float", "integer on the CPU", "options", "failed"]
    return ["Placement: every node that yields a float tensor runs on the provider asked for", _table(head, rows)]


def _checks(proof: Proof) -> list[str]:
    return ["Files", _table(["check", "result"], [[check.name, _result(check)] for check in proof.checks])]


def _result(check: CheckResult) -> str:
    if check.problems:
        return _count(len(check.problems), "problem")
    return f"not made: {check.note}" if check.note else "ok"


def _skipped(skipped: Mapping[str, str]) -> list[str]:
    return [_wrap(f"Not run: {name}: {reason}") + "\n" for name, reason in skipped.items()]


def _failures(failures: Sequence[Failure]) -> list[str]:
    if not failures:
        return []
    lines = [f"Failures, {len(failures)}"]
    for backend in dict.fromkeys(failure.backend for failure in failures):
        own = [failure for failure in failures if failure.backend == backend]
        # What is wrong with files is said once each, and all of it.
        shown = own if backend == FILES else own[:MOST_FAILURES]
        lines += [_wrap(f"  {failure.backend}: {failure.where}: {failure.reason}") for failure in shown]
        if len(own) > len(shown):
            lines.append(f"  {backend}: and {len(own) - len(shown)} more, in verification.json")
    return ["\n".join(lines) + "\n"]


def _counterexamples(examples: Sequence[Counterexample]) -> Iterator[str]:
    """Describe them all, with a program for each input and guilty layer: backends of one file fail alike."""
    firsts: dict[tuple[str, str], str] = {}
    for example in examples:
        culprit = example.culprit.module if example.culprit else ""
        key = (repr((example.case.input_ids.tolist(), example.case.attention_mask.tolist())), culprit)
        first = firsts.setdefault(key, example.backend)
        if first == example.backend:
            head, blank, program = describe(example).partition("\n\n")
            yield "\n".join(map(_wrap, head.splitlines())) + blank + program
        else:
            yield _wrap(f"{example.backend}: {example.reason}") + (
                f"\n  the same input and layer as {first}; its own program is in verification.json\n"
            )


def _verdict(proof: Proof) -> str:
    states = [f"{name.upper()}: {state}" for name, state in provider_states(proof).items()]
    return f"Verdict: {verdict(proof)}. {'. '.join(states)}."


def _heading(title: str, tolerances: Mapping[str, Tolerance]) -> str:
    limits = [
        f"  {precision} limit {tolerance.limit:.2e} = {ERROR_FACTOR:g} x {tolerance.eager_error:.2e} (eager) "
        f"+ {FLOOR_ROUNDINGS:g} roundings at {tolerance.largest_logit:.3g}"
        for precision, tolerance in tolerances.items()
    ]
    return "\n".join([title, *limits])


def _number(value: float) -> str:
    return f"{value:.2e}" if math.isfinite(value) else "-"


def _share(value: float, limit: float | None) -> str:
    """Write which share of its limit a value uses."""
    return f"{value / limit:.2f}" if limit and math.isfinite(value) else "-"


def _as_number(share: str) -> float:
    return math.inf if share == "-" else float(share)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _wrap(line: str) -> str:
    """Break a line that is too long; what follows stands two spaces further in."""
    indent = line[: len(line) - len(line.lstrip())]
    return textwrap.fill(
        line,
        WIDTH,
        subsequent_indent=indent + "  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _table(head: list[str], rows: Sequence[list[str]]) -> str:
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in [head, *rows]]
    return "\n".join(f"  {line}".rstrip() for line in lines) + "\n"
