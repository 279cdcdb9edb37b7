"""What the tolerance study measures of one model, and what all measurements together say.

Correct backends are run from the files as verification runs them. A fault is planted in the eager model, which is then
run in float32: in a file it would move the function by as much.
"""

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.tolerance_models import Architecture, Files, build_files
from export.errors import FerryError
from export.model import model_limits
from export.proof.cases import Case, build_grid
from export.proof.parity import is_asked
from export.proof.runtimes import (
    EAGER,
    Array,
    Runtime,
    load_eager_model,
    load_reference,
    one_torch_thread,
    open_runtime,
)
from export.proof.runtimes.torch_runtime import TorchRuntime
from export.proof.tolerance import ERROR_FACTOR, FLOOR_ROUNDINGS, Tolerance, derive_tolerance, distance

STUDIED = (
    "eager-math",
    "torchscript",
    "torchscript-frozen",
    *(f"onnxruntime-cpu-{level}{threads}" for level in ("off", "basic", "all") for threads in ("", "-2-threads")),
    "onnx-reference",
)
# A share of the grid: the fewer values a run has, the luckier its eager error may be, so this is harder than the whole.
BATCHES = (1, 3)
LENGTHS = (1, 7, 33)
# The constants that are compared with those in force.
FACTORS = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0)
FLOORS = (0.0, 2.0, 4.0, 8.0)


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One model: the largest errors of a run against float64, in logits, by backend and by planted fault."""

    model: str
    weights: str
    eager_error: float
    largest_logit: float
    backends: Mapping[str, float]
    faults: Mapping[str, float]

    @property
    def tolerance(self) -> Tolerance:
        """The tolerance that verification would derive."""
        return Tolerance(eager_error=self.eager_error, largest_logit=self.largest_logit)


def measure_architecture(architecture: Architecture) -> Iterator[Measurement]:
    """Build an architecture with each kind of weights, and measure every backend and every fault.

    Raises:
        FerryError: if a backend fails or gives values that are not finite.
    """
    with one_torch_thread():
        for weights, files in build_files(architecture):
            yield _measure(architecture, weights, files)


def _measure(architecture: Architecture, weights: str, files: Files) -> Measurement:
    limits = model_limits(architecture.config)
    shapes = {(batch, length) for batch in BATCHES for length in (*LENGTHS, limits.max_length)}
    cases = [case for case in build_grid(limits) if case.input_ids.shape in shapes and "-odd-" not in case.name]
    reference = _answers(load_reference(files.__getitem__), cases)
    eager = _answers(open_runtime(EAGER, files.__getitem__), cases)
    tolerance = derive_tolerance([a for a in eager if a is not None], [r for r in reference if r is not None])
    generator = torch.Generator().manual_seed(architecture.seed)
    planted = {
        name: TorchRuntime(name, faulty)
        for name, plant in FAULTS.items()
        if (faulty := plant(load_eager_model(files.__getitem__), generator)) is not None
    }
    return Measurement(
        model=architecture.name,
        weights=weights,
        eager_error=_round(tolerance.eager_error),
        largest_logit=_round(tolerance.largest_logit),
        backends={
            name: _error(_answers(open_runtime(name, files.__getitem__), cases), reference, name) for name in STUDIED
        },
        faults={name: _error(_answers(runtime, cases), reference, name) for name, runtime in planted.items()},
    )


def _answers(runtime: Runtime, cases: Sequence[Case]) -> list[Array | None]:
    return [runtime.run(c.input_ids, c.attention_mask) if is_asked(runtime, c) else None for c in cases]


def _error(answers: Sequence[Array | None], reference: Sequence[Array | None], name: str) -> float:
    errors = []
    for answer, expected in zip(answers, reference, strict=True):
        if answer is None or expected is None:
            continue
        if not np.isfinite(answer).all():
            raise FerryError(f"{name} gives values that are not finite; the study is of finite ones.")
        errors.append(distance(answer, expected))
    return _round(max(errors))


def _linears(model: nn.Module) -> list[Tensor]:
    return [module.weight for module in model.modules() if isinstance(module, nn.Linear)]


def _pick(choices: int, generator: torch.Generator) -> int:
    return int(torch.randint(choices, (), generator=generator))


def _largest_weight(model: nn.Module, generator: torch.Generator) -> nn.Module:
    weights = _linears(model)
    flat = weights[_pick(len(weights), generator)].view(-1)
    flat[flat.abs().argmax()] *= 1.01
    return model


def _any_weight(model: nn.Module, generator: torch.Generator) -> nn.Module:
    weights = _linears(model)
    flat = weights[_pick(len(weights), generator)].view(-1)
    flat[_pick(flat.numel(), generator)] += 1e-3
    return model


def _half_weights(model: nn.Module, _: torch.Generator) -> nn.Module:
    return copy.deepcopy(model).half().float()


def _tanh_gelu(model: nn.Module, _: torch.Generator) -> nn.Module | None:
    gelus = [module for module in model.modules() if isinstance(module, nn.GELU)]
    for gelu in gelus:
        gelu.approximate = "tanh"
    return model if gelus else None


def _epsilon(model: nn.Module, generator: torch.Generator) -> nn.Module:
    norms = [module for module in model.modules() if isinstance(module, nn.LayerNorm)]
    norms[_pick(len(norms), generator)].eps = 1e-6
    return model


# Each changes a model of its own; None where the model has nothing to change.
FAULTS: dict[str, Callable[[nn.Module, torch.Generator], nn.Module | None]] = {
    "weights rounded to half": _half_weights,
    "GELU by tanh": _tanh_gelu,
    "any weight + 1e-3": _any_weight,
    "a largest weight × 1.01": _largest_weight,
    "LayerNorm epsilon 1e-6": _epsilon,
}


def summarise(measurements: Sequence[Measurement]) -> dict[str, Any]:
    """Say how backends and faults stand against the limit, and how they would against other constants."""
    backends = {
        name: {
            "to_limit": _quantiles([m.backends[name] / m.tolerance.limit for m in measurements]),
            "to_eager": _quantiles([m.backends[name] / m.eager_error for m in measurements if m.eager_error]),
        }
        for name in _studied(measurements)
    }
    return {
        "configurations": len(measurements),
        "largest_ratio": max(row["to_limit"]["max"] for row in backends.values()),
        # Eager has a limit of its own.
        "eager_to_its_limit": _quantiles([m.eager_error / m.tolerance.eager_limit for m in measurements]),
        "backends": backends,
        "faults": {
            name: {"models": len(ratios), "beyond_limit": _beyond(ratios), "to_limit": _quantiles(ratios)}
            for name, ratios in fault_ratios(measurements).items()
        },
        "constants": [_compare(measurements, factor, floor) for factor in FACTORS for floor in FLOORS],
    }


def fault_ratios(measurements: Sequence[Measurement]) -> dict[str, list[float]]:
    """Return, by fault, its ratios to the limit in the models that have it."""
    return {
        name: [m.faults[name] / m.tolerance.limit for m in measurements if name in m.faults]
        for name in FAULTS
        if any(name in m.faults for m in measurements)
    }


def backend_ratios(measurements: Sequence[Measurement]) -> dict[str, list[float]]:
    """Return, by backend, its ratios to the limit in all models."""
    return {name: [m.backends[name] / m.tolerance.limit for m in measurements] for name in _studied(measurements)}


def _studied(measurements: Sequence[Measurement]) -> list[str]:
    """Return the backends in the order of the table, whatever the order of a file's keys."""
    return [name for name in STUDIED if name in measurements[0].backends]


def _compare(measurements: Sequence[Measurement], factor: float, floor: float) -> dict[str, Any]:
    """Say what another factor and floor would refuse."""
    # The limit is linear in both constants, so it is taken apart and put together again.
    limits = []
    for m in measurements:
        roundings = (m.tolerance.limit - ERROR_FACTOR * m.eager_error) / FLOOR_ROUNDINGS
        limits.append(factor * m.eager_error + floor * roundings)
    good = [max(m.backends.values()) / limit for m, limit in zip(measurements, limits, strict=True)]
    return {
        "factor": factor,
        "floor": floor,
        "largest_ratio": _round(max(good)),
        "good_models_refused": sum(ratio > 1 for ratio in good),
        "faults_refused": {
            name: _beyond(
                [m.faults[name] / limit for m, limit in zip(measurements, limits, strict=True) if name in m.faults]
            )
            for name in fault_ratios(measurements)
        },
    }


def _beyond(ratios: Sequence[float]) -> float:
    return round(sum(ratio > 1 for ratio in ratios) / len(ratios), 4)


def _quantiles(values: Sequence[float]) -> dict[str, float]:
    shares = {"min": 0.0, "p10": 0.1, "median": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    return {name: _round(float(np.quantile(values, share))) for name, share in shares.items()}


def _round(value: float) -> float:
    """Keep four digits: more would be noise in a record that people compare."""
    return float(f"{value:.4g}") if math.isfinite(value) else value
