"""A proof as text for a terminal and as a document for verification.json. Renders only: nothing is judged here.

Neither holds a clock value, and numbers are rounded, so that one model gives one text.
"""

from collections.abc import Sequence
from typing import Any

from export.proof.parity import Failure
from export.proof.placement import PROVIDERS
from export.proof.prove import Proof
from export.proof.tolerance import Tolerance

FORMAT = 2
PASSED, FAILED = "passed", "failed"
VERIFIED, NOT_VERIFIED = "verified", "not verified"


def verdict(proof: Proof) -> str:
    return PASSED if proof.holds else FAILED


def provider_states(proof: Proof) -> dict[str, str]:
    """Return what can be said of every provider: verified, failed, or not verified because nobody asked."""
    state = VERIFIED if proof.holds else FAILED
    return {name: state if name in proof.providers else NOT_VERIFIED for name in PROVIDERS}


def document(proof: Proof) -> dict[str, Any]:
    """Build verification.json, without the hashes that the caller adds."""
    return {
        "format": FORMAT,
        "verdict": verdict(proof),
        "providers": provider_states(proof),
        "versions": dict(proof.versions),
        "checks": [{"name": check.name, "problems": list(check.problems)} for check in proof.checks],
        "parity": proof.parity
        and {
            "cases": proof.parity.cases,
            "tolerance": _tolerance(proof.parity.tolerance),
            "backends": [
                {
                    "backend": part.backend,
                    "max_error": _round(part.max_error),
                    "limit": _round(part.limit),
                    "worst_case": part.worst_case,
                    "max_difference_from_eager": _round(part.max_difference_from_eager),
                    "failures": len(part.failures),
                }
                for part in proof.parity.backends
            ],
        },
        "invariances": [
            {
                "law": part.law,
                "backend": part.backend,
                "retellings": part.retellings,
                "max_difference": _round(part.max_difference),
                "limit": _round(part.limit),
                "worst": part.worst,
                "failures": len(part.failures),
            }
            for part in proof.invariances
        ],
        "test_split": proof.task
        and {
            "rows": proof.task.rows,
            "answers": proof.task.answers,
            "undecided": proof.task.undecided,
            "tolerance": _tolerance(proof.task.tolerance),
            "backends": [
                {
                    "backend": part.backend,
                    "accuracy": round(part.accuracy, 6),
                    "labels_equal_to_eager": part.equal_labels,
                    "max_error": _round(part.max_error),
                    "limit": _round(part.limit),
                    "failures": len(part.failures),
                }
                for part in proof.task.backends
            ],
        },
        "placement": [
            {
                "backend": name,
                "provider": placement.provider,
                "options": dict(placement.options),
                "nodes": placement.nodes,
                "float_nodes": placement.float_nodes,
                "integer_nodes_on_cpu": [f"{node.operator} {node.node}" for node in placement.integer_nodes],
                "faults": list(placement.faults),
            }
            for name, placement in proof.placements.items()
        ],
        "failures": [
            {"backend": failure.backend, "where": failure.where, "reason": failure.reason}
            for failure in proof.all_failures
        ],
    }


def text(proof: Proof) -> str:
    """Write the report for a terminal; the last line is the verdict."""
    parts = []
    if proof.parity:
        grid = proof.parity
        parts.append(f"Parity with eager in float64, {grid.cases} cases; {_explain(grid.tolerance)}")
        parts.append(
            _table(
                ["backend", "max error", "limit", "used", "from eager", "worst case", "failed"],
                [
                    [
                        part.backend,
                        f"{part.max_error:.2e}",
                        f"{part.limit:.2e}",
                        _share(part.max_error, part.limit),
                        f"{part.max_difference_from_eager:.2e}",
                        part.worst_case,
                        str(len(part.failures)),
                    ]
                    for part in grid.backends
                ],
            )
        )
    if proof.invariances:
        parts.append("Invariance: the largest difference between two answers to one row")
        parts.append(
            _table(
                ["backend", "law", "retellings", "difference", "limit", "used", "failed"],
                [
                    [
                        part.backend,
                        part.law,
                        str(part.retellings),
                        f"{part.max_difference:.2e}",
                        f"{part.limit:.2e}",
                        _share(part.max_difference, part.limit),
                        str(len(part.failures)),
                    ]
                    for part in proof.invariances
                ],
            )
        )
    if proof.task:
        task = proof.task
        parts.append(
            f"Test split, {task.rows} rows, {task.answers} answers, {task.undecided} of them too close to call; "
            f"{_explain(task.tolerance)}"
        )
        parts.append(
            _table(
                ["backend", "accuracy", "labels as eager", "max error", "limit", "used", "failed"],
                [
                    [
                        part.backend,
                        f"{100 * part.accuracy:.2f} %",
                        f"{part.equal_labels} of {task.answers}",
                        f"{part.max_error:.2e}",
                        f"{part.limit:.2e}",
                        _share(part.max_error, part.limit),
                        str(len(part.failures)),
                    ]
                    for part in task.backends
                ],
            )
        )
    if proof.placements:
        parts.append("Placement: every node that yields a float tensor runs on the provider asked for")
        parts.append(
            _table(
                ["backend", "provider", "nodes", "float", "integer on the CPU", "options", "failed"],
                [
                    [
                        name,
                        placement.provider,
                        str(placement.nodes),
                        str(placement.float_nodes),
                        str(len(placement.integer_nodes)),
                        ", ".join(f"{key}={value}" for key, value in placement.options.items()) or "none",
                        str(len(placement.faults)),
                    ]
                    for name, placement in proof.placements.items()
                ],
            )
        )
    parts.append("Files")
    parts.append(
        _table(
            ["check", "result"],
            [[check.name, "ok" if not check.problems else f"{len(check.problems)} problems"] for check in proof.checks],
        )
    )
    failures = proof.all_failures
    if failures:
        parts.append(f"Failures, {len(failures)}:")
        parts.append("\n".join(f"  {_sentence(failure)}" for failure in failures) + "\n")
    states = [f"{name.upper()}: {state}" for name, state in provider_states(proof).items()]
    parts.append(f"Verdict: {verdict(proof)}. {'. '.join(states)}.")
    return "\n".join(parts)


def _sentence(failure: Failure) -> str:
    return f"{failure.backend}: {failure.where}: {failure.reason}"


def _explain(tolerance: Tolerance) -> str:
    return (
        f"limit {tolerance.limit:.2e} = 4 x {tolerance.eager_error:.2e} (eager) "
        f"+ 4 roundings at {tolerance.largest_logit:.3g}"
    )


def _tolerance(tolerance: Tolerance) -> dict[str, float]:
    return {
        "limit": _round(tolerance.limit),
        "eager_error": _round(tolerance.eager_error),
        "largest_logit": _round(tolerance.largest_logit),
    }


def _share(value: float, limit: float) -> str:
    return f"{value / limit:.2f}" if limit else "-"


def _round(value: float) -> float:
    return float(f"{value:.3g}")


def _table(head: list[str], rows: Sequence[list[str]]) -> str:
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in [head, *rows]]
    return "\n".join(f"  {line}".rstrip() for line in lines) + "\n"
