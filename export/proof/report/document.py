"""A proof as a document: verification.json, without the hashes that the caller adds.

Errors are in logits. A number that is not finite, such as the distance between answers of two shapes, is null.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from export.proof.cases import Case
from export.proof.explain import Counterexample
from export.proof.invariance import Invariance
from export.proof.parity import BackendParity, Parity
from export.proof.placement import PROVIDERS, Placement
from export.proof.precision_table import PrecisionRow
from export.proof.prove import Proof
from export.proof.search import Search
from export.proof.task_metrics import TaskMetrics
from export.proof.tolerance import Distances, Tolerance

FORMAT = 3
PASSED, FAILED = "passed", "failed"
VERIFIED, NOT_VERIFIED = "verified", "not verified"
# The backend of failures that are about the files and about no backend.
FILES = "files"
# What stands among the errors of a backend for a case that is longer than it can be asked.
NOT_ASKED = "not asked"


def verdict(proof: Proof) -> str:
    return PASSED if proof.holds else FAILED


def provider_states(proof: Proof) -> dict[str, str]:
    """Return what can be said of every provider: verified, failed, or not verified because nobody asked."""
    state = VERIFIED if proof.holds else FAILED
    return {name: state if name in proof.providers else NOT_VERIFIED for name in PROVIDERS}


def document(proof: Proof) -> dict[str, Any]:
    """Build verification.json; `errors` of a backend stand in the order of `cases`."""
    return {
        "format": FORMAT,
        "verdict": verdict(proof),
        "providers": provider_states(proof),
        "versions": dict(proof.versions),
        "effort": asdict(proof.effort),
        "skipped": dict(proof.skipped),
        "checks": [
            {"name": check.name, "problems": list(check.problems), "note": check.note} for check in proof.checks
        ],
        "parity": proof.parity and _parity(proof.parity),
        "invariances": [_invariance(part) for part in proof.invariances],
        "searches": [_search(part) for part in proof.searches],
        "test_split": proof.task and _task(proof.task),
        "precisions": [_precision(row) for row in proof.precisions],
        "placement": [_placement(name, placement) for name, placement in proof.placements.items()],
        "failures": [
            {"backend": failure.backend, "where": failure.where, "reason": failure.reason}
            for failure in proof.all_failures
        ],
        "counterexamples": [_counterexample(example) for example in proof.counterexamples],
    }


def round_to(value: float | None, digits: int = 3) -> float | None:
    """Round to so many significant digits; None stays, and takes the place of what is not finite."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.{digits}g}")


def pattern_of(case: Case) -> str:
    """Return what the name of a case of the grid says behind its shape: which mask, or which ids."""
    return case.name.split("-", 2)[-1]


def _case(case: Case) -> dict[str, Any]:
    batch, length = case.input_ids.shape
    return {"name": case.name, "batch": batch, "length": length}


def _parity(parity: Parity) -> dict[str, Any]:
    return {
        "cases": [{**_case(case), "pattern": pattern_of(case)} for case in parity.cases],
        "tolerance": _tolerance(parity.tolerance),
        "tolerances": _tolerances(parity.tolerances),
        "backends": [_backend_parity(part, parity.cases) for part in parity.backends],
    }


def _backend_parity(part: BackendParity, cases: tuple[Case, ...]) -> dict[str, Any]:
    """Describe what the grid says of a backend; among `errors`, null is a case without a comparable answer."""
    return {
        "backend": part.backend,
        "precision": part.precision,
        "max_error": round_to(part.max_error),
        "limit": round_to(part.limit),
        "worst_case": part.worst_case,
        "max_difference_from_eager": round_to(part.max_difference_from_eager),
        "distances": _distances(part.distances),
        "errors": [round_to(part.errors[case.name], 2) if case.name in part.errors else NOT_ASKED for case in cases],
        "failures": len(part.failures),
    }


def _invariance(part: Invariance) -> dict[str, Any]:
    return {
        "law": part.law,
        "backend": part.backend,
        "retellings": part.retellings,
        "max_difference": round_to(part.max_difference),
        "limit": round_to(part.limit),
        "worst": part.worst,
        "curve": [{"amount": amount, "difference": round_to(value, 2)} for amount, value in part.curve.items()],
        "failures": len(part.failures),
    }


def _search(part: Search) -> dict[str, Any]:
    return {
        "scale": part.scale,
        "asked": part.asked,
        "drawn": part.drawn,
        "cut": part.cut,
        "backends": [
            {
                "backend": found.backend,
                "max_error": round_to(found.max_error),
                "limit": round_to(found.limit),
                "worst_case": found.worst and found.worst.name,
                "failures": len(found.failures),
            }
            for found in part.backends
        ],
    }


def _task(task: TaskMetrics) -> dict[str, Any]:
    return {
        "rows": task.rows,
        "answers": task.answers,
        "undecided": task.undecided,
        "tolerance": _tolerance(task.tolerance),
        "tolerances": _tolerances(task.tolerances),
        "backends": [
            {
                "backend": part.backend,
                "precision": part.precision,
                "accuracy": round(part.accuracy, 6),
                "macro_f1": round(part.macro_f1, 6),
                "accuracy_budget": part.budget,
                "labels_equal_to_eager": part.equal_labels,
                "max_error": round_to(part.max_error),
                "limit": round_to(part.limit),
                "failures": len(part.failures),
            }
            for part in task.backends
        ],
    }


def _precision(row: PrecisionRow) -> dict[str, Any]:
    return {
        **asdict(row),
        "accuracy": round(row.accuracy, 6),
        "macro_f1": round(row.macro_f1, 6),
        "lost": round(row.lost, 6),
        "invariance": round_to(row.invariance),
    }


def _placement(name: str, placement: Placement) -> dict[str, Any]:
    return {
        "backend": name,
        "provider": placement.provider,
        "options": dict(placement.options),
        "nodes": placement.nodes,
        "float_nodes": placement.float_nodes,
        "integer_nodes_on_cpu": [f"{node.operator} {node.node}" for node in placement.integer_nodes],
        "faults": list(placement.faults),
    }


def _counterexample(example: Counterexample) -> dict[str, Any]:
    culprit = example.culprit
    return {
        "backend": example.backend,
        "origin": example.origin,
        "case": _case(example.case),
        "smallest": example.smallest,
        "reason": example.reason,
        "reproduction": example.reproduction,
        "culprit": culprit
        and {
            "module": culprit.module,
            "operator": culprit.operator,
            "distance": round_to(culprit.distance),
            "budget": round_to(culprit.budget),
        },
    }


def _distances(distances: Distances) -> dict[str, float | None]:
    return {
        "max_abs": round_to(distances.max_abs),
        "max_rel": round_to(distances.max_rel),
        "p99": round_to(distances.p99),
        # Both are near one, where significant digits would hide everything.
        "cosine": round(distances.cosine, 9),
        "argmax_agreement": round(distances.argmax_agreement, 6),
    }


def _tolerances(tolerances: Mapping[str, Tolerance]) -> dict[str, dict[str, float | None]]:
    return {precision: _tolerance(tolerance) for precision, tolerance in tolerances.items()}


def _tolerance(tolerance: Tolerance) -> dict[str, float | None]:
    return {
        "limit": round_to(tolerance.limit),
        "eager_error": round_to(tolerance.eager_error),
        "largest_logit": round_to(tolerance.largest_logit),
    }
