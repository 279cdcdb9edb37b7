"""Proofs made by hand: small, with everything in them that a report has to tell."""

from dataclasses import replace

import numpy as np

from export.proof.cases import Case
from export.proof.checks import CheckResult
from export.proof.explain import Counterexample
from export.proof.invariance import LAWS, Invariance
from export.proof.localise import Culprit
from export.proof.parity import BackendParity, Failure, Parity
from export.proof.placement import Assignment, Placement
from export.proof.precision import FLOAT32, INT8
from export.proof.prove import Effort, Proof
from export.proof.search import BackendSearch, Search
from export.proof.task_metrics import BackendTask, TaskMetrics
from export.proof.tolerance import Distances, Tolerance

TOLERANCE = Tolerance(eager_error=2e-6, largest_logit=8.0)
LIMIT = TOLERANCE.limit
BACKENDS = ("eager", "torchscript", "onnxruntime-cpu-all-int8", "onnx-reference")
REPRODUCTION = 'import numpy as np\n\nprint("this program shows the failure")\n'
HOSTILE = "</script><script>alert('x')</script> & \"quoted\""


def case(name: str, batch: int, length: int) -> Case:
    ids = np.arange(batch * length, dtype=np.int64).reshape(batch, length)
    return Case(name=name, input_ids=ids, attention_mask=np.ones_like(ids))


CASES = (
    case("B1-T2-ones", 1, 2),
    case("B1-T70-ones", 1, 70),
    case("B1-T70-all-empty", 1, 70),
    case("B2-T2-ones", 2, 2),
    case("B2-T2-one-token", 2, 2),
    case("B2-T64-ids-from-0", 2, 64),
)
EXACT = Distances(max_abs=2e-6, max_rel=1.234e-5, p99=1.5e-6, cosine=0.99999999951, argmax_agreement=1.0)
SMALL_ERRORS = (1.234e-6, 2e-6, 0.0, 5e-7, 1e-6, 1.5e-6)


def good_proof() -> Proof:
    """Build a proof that holds; int8 has no limit, and onnx-reference is not asked for long rows."""
    errors = {backend: dict(zip((case.name for case in CASES), SMALL_ERRORS, strict=True)) for backend in BACKENDS}
    errors["onnx-reference"] = {name: error for name, error in errors["eager"].items() if "T70" not in name}
    limits = {"eager": TOLERANCE.eager_limit, "torchscript": LIMIT, BACKENDS[2]: None, "onnx-reference": LIMIT}
    curves = {"order": {0: 0.0}, "company": {0: 1e-7, 1: 2e-7}}
    return Proof(
        providers=("cpu",),
        versions={"numpy": "2.0", "torch": "2.13"},
        checks=(
            CheckResult(name="onnx.checker", problems=()),
            CheckResult(name="weights", problems=()),
        ),
        parity=Parity(
            cases=CASES,
            tolerances={FLOAT32: TOLERANCE},
            backends=tuple(
                BackendParity(
                    backend=backend,
                    precision=INT8 if backend == BACKENDS[2] else FLOAT32,
                    errors=errors[backend],
                    distances=EXACT,
                    worst_case=max(errors[backend], key=errors[backend].__getitem__),
                    max_difference_from_eager=0.0,
                    limit=limits[backend],
                    failures=(),
                )
                for backend in BACKENDS
            ),
        ),
        invariances=tuple(
            Invariance(
                law=law,
                backend=backend,
                retellings=12,
                max_difference=max(curves.get(law, {1: 3e-7}).values()),
                worst=f"B3-T7-ones, {law} (1 columns)",
                curve=curves.get(law, {1: 3e-7, 2: 0.0, 13: 1e-7}),
                limit=LIMIT,
                failures=(),
            )
            for backend in BACKENDS[:3]
            for law in LAWS
        ),
        searches=(
            Search(scale=1.0, asked=64, drawn=20, cut=True, backends=(searched("eager", 1e-3), searched(BACKENDS[1]))),
            Search(scale=8.0, asked=16, drawn=16, cut=False, backends=(searched("eager", 1e-3),)),
        ),
        task=TaskMetrics(
            rows=30,
            answers=30,
            undecided=1,
            tolerances={FLOAT32: TOLERANCE},
            backends=tuple(
                BackendTask(
                    backend=backend,
                    precision=FLOAT32,
                    accuracy=0.9,
                    macro_f1=0.8,
                    budget=None,
                    equal_labels=30,
                    max_error=2e-6,
                    limit=limits[backend],
                    failures=(),
                )
                for backend in BACKENDS[:3]
            ),
        ),
        placements={
            BACKENDS[2]: Placement(
                provider="CUDAExecutionProvider",
                options={"use_tf32": "0"},
                nodes=12,
                float_nodes=10,
                integer_nodes=tuple(
                    Assignment(node=name, operator="Shape", provider="CPUExecutionProvider", yields_float=False)
                    for name in ("shape_1", "shape_2")
                ),
                faults=(),
            )
        },
        skipped={"aot-inductor": "there is no C++ compiler (g++)"},
        effort=Effort(draws=64, seconds=5.0),
        failures=(),
    )


def searched(backend: str, limit: float = LIMIT) -> BackendSearch:
    return BackendSearch(
        backend=backend, max_error=3e-6, worst=case("B4-T9-random-texts-7", 4, 9), limit=limit, failures=()
    )


def bad_proof(reason: str = "error 4.56e-03, limit 1.18e-05", reproduction: str = REPRODUCTION) -> Proof:
    """Build a proof of which TorchScript fails two inputs, one with NaN, and a law; a check fails, one is not made."""
    proof = good_proof()
    assert proof.parity is not None
    eager, torchscript, *others = proof.parity.backends
    failed = replace(
        torchscript,
        errors={**torchscript.errors, "B2-T2-ones": 4.56e-3, "B1-T70-all-empty": None},
        worst_case="B2-T2-ones",
        failures=(
            Failure(backend="torchscript", where="B2-T2-ones", reason=reason, case=CASES[3]),
            Failure(backend="torchscript", where="B1-T70-all-empty", reason="5 of 5 values are not finite"),
        ),
    )
    laws = list(proof.invariances)
    padding = next(index for index, part in enumerate(laws) if part.backend == "torchscript")
    # Answers of two shapes have no distance.
    laws[padding] = replace(
        laws[padding],
        max_difference=float("inf"),
        curve={1: float("inf"), 2: 0.0},
        failures=(Failure(backend="torchscript", where=laws[padding].worst, reason="shape (3, 4), wanted (3, 5)"),),
    )
    return replace(
        proof,
        checks=(
            CheckResult(name="onnx.checker", problems=()),
            CheckResult(name="weights", problems=("model.pt lacks the weight a", "and b")),
            CheckResult(name="fresh export", problems=(), note="the files were exported by torch 2.12"),
        ),
        parity=replace(proof.parity, backends=(eager, failed, *others)),
        invariances=tuple(laws),
        counterexamples=(
            Counterexample(
                backend="torchscript",
                origin="B2-T2-ones",
                case=case("B1-T1", 1, 1),
                reason=reason,
                smallest=True,
                reproduction=reproduction,
                culprit=Culprit(module="encoder.blocks.1", operator="aten::add", distance=1e-3, budget=1.1e-6),
            ),
        ),
    )
