"""What is proven of one model on a device: parity on the whole grid, the invariances, and where the nodes ran."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from benchmarks.gpu_runtimes import load_on_device, load_yardsticks, open_session
from benchmarks.tolerance_models import Architecture, Files
from export.contract import ATTENTION_MASK, INPUT_IDS
from export.model import model_limits
from export.onnx_export import ONNX_FILE
from export.proof.cases import MASKS, build_grid
from export.proof.invariance import Invariance, check_invariance
from export.proof.parity import BackendParity, Failure, Parity, Track, check_parity, no_progress
from export.proof.placement import Placement
from export.proof.runtimes import load_reference, one_torch_thread
from export.proof.tolerance import distance


@dataclass(frozen=True, kw_only=True)
class Tf32Control:
    """The same file with TF32 on, which the limit is there to refuse: its largest error in logits, and the limit."""

    max_error: float
    limit: float

    @property
    def refused(self) -> bool:
        return self.max_error > self.limit


@dataclass(frozen=True, kw_only=True)
class DeviceProof:
    """What was found of one model; `tf32` is None on a device that has no TF32."""

    model: str
    parity: Parity
    invariances: tuple[Invariance, ...]
    placements: Mapping[str, Placement]
    tf32: Tf32Control | None

    @property
    def failures(self) -> list[Failure]:
        """Everything that is wrong. TF32 is none of it: what it does is recorded."""
        return [
            *(failure for backend in self.parity.backends for failure in backend.failures),
            *(failure for law in self.invariances for failure in law.failures),
            *(
                Failure(backend=name, where="placement", reason=fault)
                for name, placement in self.placements.items()
                for fault in placement.faults
            ),
        ]

    def to_json(self) -> dict[str, Any]:
        """Return what the result file holds of the model."""
        return {
            "model": self.model,
            "cases": len(self.parity.cases),
            "tolerances": {
                precision: {**asdict(tolerance), "limit": tolerance.limit}
                for precision, tolerance in self.parity.tolerances.items()
            },
            "backends": {backend.backend: _describe_backend(backend) for backend in self.parity.backends},
            "invariances": [
                {
                    "law": law.law,
                    "backend": law.backend,
                    "retellings": law.retellings,
                    "max_difference": law.max_difference,
                    "worst": law.worst,
                    "limit": law.limit,
                }
                for law in self.invariances
            ],
            "placements": {name: _describe_placement(placement) for name, placement in self.placements.items()},
            "tf32_on": {**asdict(self.tf32), "refused": self.tf32.refused} if self.tf32 else None,
            "failures": [
                {"backend": failure.backend, "where": failure.where, "reason": failure.reason}
                for failure in self.failures
            ],
        }


def prove_on_device(
    architecture: Architecture, files: Files, device: str, *, track: Track = no_progress
) -> DeviceProof:
    """Judge a model's files on a device, a key of PROVIDERS.

    Raises:
        FerryError: if something can't be loaded there, or the reference or eager on the CPU can't run a case.
    """
    limits = model_limits(architecture.config)
    cases = build_grid(limits)
    with one_torch_thread():
        runtimes = load_on_device(files.__getitem__, device)
        yardsticks = load_yardsticks(files.__getitem__)
        reference = load_reference(files.__getitem__)
        parity = check_parity(reference, [*yardsticks, *runtimes], cases, limits, track)
        return DeviceProof(
            model=architecture.name,
            parity=parity,
            invariances=tuple(check_invariance(runtimes, limits, parity.tolerances, track=track)),
            placements={runtime.name: runtime.placement for runtime in runtimes if runtime.placement is not None},
            tf32=_try_tf32(files, parity) if device == "cuda" else None,
        )


def _try_tf32(files: Files, parity: Parity) -> Tf32Control:
    session = open_session(files[ONNX_FILE], "cuda", tf32=True)
    reference = load_reference(files.__getitem__)
    errors = []
    for case in parity.cases:
        feed = {INPUT_IDS: case.input_ids, ATTENTION_MASK: case.attention_mask}
        errors.append(distance(session.run(None, feed)[0], reference.run(case.input_ids, case.attention_mask)))
    return Tf32Control(max_error=max(errors), limit=parity.tolerance.limit)


def _describe_backend(backend: BackendParity) -> dict[str, Any]:
    return {
        "precision": backend.precision,
        "limit": backend.limit,
        "max_error": backend.max_error,
        "worst_case": backend.worst_case,
        "by_mask": {mask: _largest(backend, mask) for mask in MASKS},
        "distances": asdict(backend.distances),
        "failures": len(backend.failures),
    }


def _largest(backend: BackendParity, mask: str) -> float | None:
    """Return the largest error of the cases with a mask; None if one of them had no comparable answer."""
    errors = [error for name, error in backend.errors.items() if name.endswith(f"-{mask}")]
    return None if any(error is None for error in errors) else max((e for e in errors if e is not None), default=0.0)


def _describe_placement(placement: Placement) -> dict[str, Any]:
    operators = [assignment.operator for assignment in placement.integer_nodes]
    return {
        "provider": placement.provider,
        "options": dict(placement.options),
        "nodes": placement.nodes,
        "float_nodes": placement.float_nodes,
        "integer_nodes_on_the_cpu": {operator: operators.count(operator) for operator in sorted(set(operators))},
        "faults": list(placement.faults),
    }


def describe_proofs(proofs: Sequence[DeviceProof]) -> str:
    """Say, for a person, how each backend stands over all models."""
    names = dict.fromkeys(backend.backend for proof in proofs for backend in proof.parity.backends)
    lines = [f"{'backend':34} {'error / limit':>13}  {'failures':>8}"]
    for name in names:
        rows = [backend for proof in proofs for backend in proof.parity.backends if backend.backend == name]
        ratio = max(row.max_error / row.limit if row.limit else np.inf for row in rows)
        failures = sum(failure.backend == name for proof in proofs for failure in proof.failures)
        lines.append(f"{name:34} {ratio:13.3f}  {failures:8}")
    return "\n".join(lines)
