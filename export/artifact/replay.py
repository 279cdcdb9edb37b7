"""The numeric half of a check: the packaged models run again, against float64 and the goldens, on this machine.

The whole grid is run, for a part of it would be a part of the proof.
"""

import json
from collections.abc import Iterator, Sequence

from export.artifact.findings import Finding, numeric, structural
from export.artifact.goldens import PROBABILITY_TOLERANCE, bound_hashes, replay_goldens, replay_precision
from export.artifact.layout import GOLDENS_FILE, VERIFICATION_FILE, ArtifactError, optional_in
from export.artifact.load import RUNTIMES, Artifact, open_model
from export.contract import LOGITS, check_inputs
from export.errors import FerryError
from export.model import CONFIG_FILE, model_limits
from export.proof.cases import Case, build_grid
from export.proof.checks import Files
from export.proof.invariance import check_invariance
from export.proof.parity import Failure, check_parity
from export.proof.precision import FLOAT16, FLOAT32
from export.proof.precision_table import SPEAKERS
from export.proof.runtimes import (
    EAGER,
    EAGER_HALF,
    Array,
    BackendError,
    Ids,
    Runtime,
    load_reference,
    one_torch_thread,
    open_runtime,
)
from export.proof.tolerance import ERROR_FACTOR, Tolerance

# verification.json rounds to three significant digits, and float64 gives those alike on every machine.
LOGIT_ROUNDING = 0.0051
# Eager's own error follows the order in which a processor adds: another processor is another backend, and a backend
# may be this many times as far from float64 as eager is (export/proof/tolerance.py).
LIMIT_FACTOR = ERROR_FACTOR


def replay(artifact: Artifact, files: Files) -> Iterator[Finding]:
    """Run the goldens, the grid and the invariances on the backends of RUNTIMES, and compare verification's figures.

    Raises:
        ValueError, KeyError, TypeError: if a file does not hold what Ferry writes into it.
    """
    with one_torch_thread():
        # A .pt2 takes as long to load as the goldens take to run, so what was loaded serves both.
        opened: dict[str, Runtime] = {}
        yield from _replay_goldens(artifact, opened)
        yield from _replay_precisions(artifact, opened)
        yield from _prove(artifact, files, opened)


def _replay_goldens(artifact: Artifact, opened: dict[str, Runtime]) -> Iterator[Finding]:
    """Replay the goldens on every runtime, and put into `opened` those that could be opened."""
    goldens = artifact.goldens()
    if not goldens["texts"] or not goldens["batches"]:
        yield from structural("goldens", [f"{GOLDENS_FILE} must hold texts and batches."])
    bound = bound_hashes(artifact.metadata)
    others = [key for key in bound if goldens["bound"].get(key) != bound[key]]
    if others:
        yield from structural("goldens", [f"{GOLDENS_FILE} is about another artifact: {', '.join(others)} differ."])
    if goldens["tolerance"]["probabilities"] != PROBABILITY_TOLERANCE:
        yield from structural("goldens", [f"{GOLDENS_FILE} allows other probabilities than {PROBABILITY_TOLERANCE}."])
    for runtime in RUNTIMES:
        try:
            model = open_model(artifact, runtime)
            opened[runtime] = model.runtime
            yield from numeric("goldens", replay_goldens(artifact, model, goldens))
        except ArtifactError as error:
            yield from structural("goldens", [f"{runtime}: {problem}" for problem in error.problems])
        except FerryError as error:
            yield from numeric("goldens", [f"{runtime}: {error}"])


def _replay_precisions(artifact: Artifact, opened: dict[str, Runtime]) -> Iterator[Finding]:
    """Replay the goldens' ids on the files of other precisions, and put those that could be opened into `opened`."""
    goldens = artifact.goldens()
    tolerances = goldens["tolerance"].get("precisions", {})
    for name in optional_in(artifact.manifest["files"]):
        backend = SPEAKERS[name]
        try:
            opened[backend] = runtime = open_runtime(backend, artifact.read)
        except BackendError as error:
            yield from numeric("goldens", [f"{backend}: {error}"])
            continue

        def run(input_ids: Ids, attention_mask: Ids, runtime: Runtime = runtime) -> Array:
            check_inputs(input_ids, attention_mask, artifact.limits)
            return runtime.run(input_ids, attention_mask)

        yield from numeric("goldens", replay_precision(name, run, goldens, tolerances[name]))


def _prove(artifact: Artifact, files: Files, opened: dict[str, Runtime]) -> Iterator[Finding]:
    """Run the grid and the laws, on the runtimes in `opened` and on those that are not in it."""
    try:
        # A grid of every length, and a model of every layer, are as large as the configuration says.
        files.refuse_oversize()
    except ValueError as error:
        yield from numeric("parity", [_no_model(error)])
        return
    limits = model_limits(files.config)
    cases = build_grid(limits)
    try:
        reference, eager = load_reference(artifact.read), open_runtime(EAGER, artifact.read)
        runtimes: list[Runtime] = []
        for name, (backend, _) in RUNTIMES.items():
            try:
                runtimes.append(opened.get(name) or open_runtime(backend, artifact.read))
            except BackendError as error:
                yield from numeric("parity", [f"{backend} can't load its file: {error}"])
        others = [opened[SPEAKERS[name]] for name in files.optional if SPEAKERS[name] in opened]
        runtimes += others
        # The limit of half precision follows from eager's.
        baselines = [eager, *(open_runtime(EAGER_HALF, artifact.read) for own in others if own.precision == FLOAT16)]
        parity = check_parity(reference, [*baselines, *runtimes], cases, limits)
    except BackendError as error:
        yield from numeric("parity", [_no_model(error)])
        return
    for part in parity.backends:
        yield from numeric("parity", _summary(part.backend, f"{len(cases)} cases", part.failures))
    for law in check_invariance(runtimes, limits, parity.tolerances):
        yield from numeric(
            "invariance", _summary(law.backend, f"{law.retellings} retellings ({law.law})", law.failures)
        )
    yield from numeric("figures", _figure_problems(artifact, parity.tolerances[FLOAT32], cases))


def _no_model(error: Exception) -> str:
    return f"{CONFIG_FILE} and the weights do not make a model that runs: {error}"


def _summary(backend: str, asked: str, failures: Sequence[Failure]) -> list[str]:
    if not failures:
        return []
    return [f"{backend} fails in {len(failures)} of {asked}, first in {failures[0].where}: {failures[0].reason}."]


def _figure_problems(artifact: Artifact, here: Tolerance, cases: Sequence[Case]) -> list[str]:
    """Say which figures of the record, whose hashes anybody can rewrite, do not come from these files."""
    grid = json.loads(artifact.read(VERIFICATION_FILE))["parity"]
    told = grid["tolerance"]
    problems = []
    # The grid is a part of the format: whoever changes it, changes that too.
    if [case["name"] for case in grid["cases"]] != [case.name for case in cases]:
        problems.append(f"{VERIFICATION_FILE} tells of other cases than the {len(cases)} of this model's grid.")
    # Written so that NaN fails.
    if not abs(told["largest_logit"] - here.largest_logit) <= LOGIT_ROUNDING * here.largest_logit:
        problems.append(
            f"{VERIFICATION_FILE} tells {told['largest_logit']} for the largest logit of the grid; "
            f"in float64 it is {here.largest_logit:.4g}. It is about other files, or about another grid."
        )
    if not here.limit / LIMIT_FACTOR <= told["limit"] <= here.limit * LIMIT_FACTOR:
        problems.append(
            f"{VERIFICATION_FILE} tells a limit of {told['limit']:.3g}; derived here it is {here.limit:.3g}, and "
            f"machines differ by less than {LIMIT_FACTOR:g} times."
        )
    tolerance, most = artifact.goldens()["tolerance"][LOGITS], ERROR_FACTOR * here.eager_limit
    if not 0 <= tolerance <= most:
        problems.append(
            f"{GOLDENS_FILE} has the tolerance {tolerance:.3g}; no sound verification gives above {most:.3g}."
        )
    return problems
