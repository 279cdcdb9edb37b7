"""A failure as a Python program to copy and paste: it needs the model file, numpy and the runtime, not Ferry.

Only the eager models need Ferry's code: they have no file to run.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from export.contract import ATTENTION_MASK, INPUT_IDS
from export.model import CONFIG_FILE, WEIGHTS_FILE
from export.onnx_export import ONNX_FILE
from export.proof.cases import Case
from export.proof.runtimes import AOT_INDUCTOR, BACKENDS, EAGER, EAGER_HALF, PT2, Array, Runtime
from export.proof.runtimes.onnx_runtime import OnnxRuntime, session_providers
from export.proof.runtimes.torch_runtime import EAGER_MATH
from export.pt2 import PT2_FILE
from export.torchscript import TORCHSCRIPT_FILE

# So wide that a terminal shows a row in one line.
_WIDTH = 118


class _Steps(NamedTuple):
    """The lines of a program that differ from backend to backend: how to import, to load, and to ask."""

    imports: list[str]
    load: list[str]
    ask: list[str]
    needs: str


def reproduce(runtime: Runtime, case: Case, expected: Array, limit: float | None) -> str:
    """Write a program that asks a backend for one input and prints its answer beside what is right.

    Args:
        runtime: the backend.
        case: the input.
        expected: what the reference answers, float64.
        limit: what the largest error may be, in logits; None where logits have no limit.
    """
    return "\n".join(
        [
            *_head(runtime),
            *_input("", case),
            "# What PyTorch computes in float64 from config.json and model.safetensors.",
            *_literal("expected", expected, None),
            "",
            f"actual = ask({INPUT_IDS}, {ATTENTION_MASK})",
            *_verdict(limit),
        ]
    )


def reproduce_law(
    runtime: Runtime, case: Case, other: Case, rows: Sequence[int], columns: Sequence[int], limit: float
) -> str:
    """Write a program that asks a backend for one batch told in two ways and prints both answers.

    Args:
        runtime: the backend.
        case: the batch.
        other: the same told in another way.
        rows: which rows of the batch the other's rows are.
        columns: where the batch's tokens stand in the other.
        limit: what the largest difference may be, in logits.
    """
    return "\n".join(
        [
            *_head(runtime),
            *_input("", case),
            "# The same rows, told in another way.",
            *_input("other_", other),
            "",
            f"expected = ask({INPUT_IDS}, {ATTENTION_MASK})[{list(rows)}]",
            f"actual = ask(other_{INPUT_IDS}, other_{ATTENTION_MASK})",
            "if actual.ndim == 3:",
            f"    actual = actual[:, {list(columns)}]",
            *_verdict(limit),
        ]
    )


def _head(runtime: Runtime) -> list[str]:
    steps = _steps(runtime)
    return [
        f"# Shows a failure of {runtime.name}. Run it in the folder that holds {steps.needs}.",
        "import numpy as np",
        *steps.imports,
        "",
        *steps.load,
        "",
        "",
        f"def ask({INPUT_IDS}, {ATTENTION_MASK}):",
        *(f"    {line}" for line in steps.ask),
        "",
        "",
    ]


def _verdict(limit: float | None) -> list[str]:
    allowed = "any" if limit is None else f"{limit:.3g}"
    return [
        'print("expected", expected.tolist())',
        'print("actual  ", actual.tolist())',
        "if actual.shape != expected.shape:",
        '    print("shape", actual.shape, "wanted", expected.shape)',
        "else:",
        f'    print("largest error", np.abs(actual - expected).max(), "allowed {allowed}")',
        "",
    ]


def _input(prefix: str, case: Case) -> list[str]:
    return [
        *_literal(f"{prefix}{INPUT_IDS}", case.input_ids, "np.int64"),
        *_literal(f"{prefix}{ATTENTION_MASK}", case.attention_mask, "np.int64"),
    ]


def _literal(name: str, values: Array, dtype: str | None) -> list[str]:
    """Write an array as an assignment that gives back its very values."""
    # Python writes the shortest number that reads back as the same float64; `nan` and `inf` are numpy's names here.
    start = f"{name} = np.array("
    text = np.array2string(
        values,
        separator=", ",
        prefix=start,
        threshold=values.size + 1,
        max_line_width=_WIDTH,
        formatter={"float_kind": lambda value: repr(float(value)) if np.isfinite(value) else f"np.{value}"},
    )
    kind = f", {dtype}" if dtype else ""
    return f"{start}{text}{kind})".splitlines()


def _steps(runtime: Runtime) -> _Steps:
    if isinstance(runtime, OnnxRuntime):
        file = _file(runtime)
        return _Steps(
            imports=["import onnxruntime as ort"],
            load=[
                "options = ort.SessionOptions()",
                f"options.graph_optimization_level = ort.GraphOptimizationLevel.{runtime.level.name}",
                f"options.intra_op_num_threads = {runtime.threads}",
                f'session = ort.InferenceSession("{file}", options, providers={session_providers(runtime.provider)})',
            ],
            ask=_SESSION,
            needs=file,
        )
    return _STEPS[runtime.name]


def _file(runtime: Runtime) -> str:
    (file,) = (backend.file for backend in BACKENDS if backend.name == runtime.name)
    assert file is not None
    return file


_SESSION = [f'return session.run(None, {{"{INPUT_IDS}": {INPUT_IDS}, "{ATTENTION_MASK}": {ATTENTION_MASK}}})[0]']
_MODULE = [f"return module(torch.from_numpy({INPUT_IDS}), torch.from_numpy({ATTENTION_MASK})).detach().numpy()"]
_ONE_THREAD = "torch.set_num_threads(1)"


def _eager(ending: str = "") -> _Steps:
    return _Steps(
        imports=["from pathlib import Path", "import torch", "from export.model import load_model"],
        load=[_ONE_THREAD, 'module = load_model(Path("."))' + ending],
        ask=_MODULE,
        needs=f"{CONFIG_FILE} and {WEIGHTS_FILE}, with Ferry's clone on PYTHONPATH",
    )


def _scripted(*frozen: str) -> _Steps:
    return _Steps(
        imports=["import torch"],
        load=[_ONE_THREAD, f'module = torch.jit.load("{TORCHSCRIPT_FILE}", map_location="cpu")', *frozen],
        ask=_MODULE,
        needs=TORCHSCRIPT_FILE,
    )


_MATH = _eager()._replace(
    imports=[*_eager().imports, "from torch.nn.attention import SDPBackend, sdpa_kernel"],
    ask=["with sdpa_kernel(SDPBackend.MATH):", *(f"    {line}" for line in _MODULE)],
)
_EXPORTED = _Steps(
    imports=["import torch"],
    load=[_ONE_THREAD, f'program = torch.export.load("{PT2_FILE}")', "module = program.module()"],
    ask=_MODULE,
    needs=PT2_FILE,
)
_COMPILED = _EXPORTED._replace(
    imports=["import tempfile", "import torch"],
    load=[
        _ONE_THREAD,
        f'program = torch.export.load("{PT2_FILE}")',
        "example = torch.zeros(2, 2, dtype=torch.int64)",
        "program.example_inputs = ((example, torch.ones_like(example)), {})",
        'package = tempfile.mkdtemp() + "/model.pt2"',
        "package = torch._inductor.aoti_compile_and_package(program, package_path=package)",
        "module = torch._inductor.aoti_load_package(package)",
    ],
)
_REFERENCE_EVALUATOR = _Steps(
    imports=["from onnx.reference import ReferenceEvaluator"],
    load=[f'session = ReferenceEvaluator("{ONNX_FILE}")'],
    ask=_SESSION,
    needs=ONNX_FILE,
)
# A row for each backend that is not ONNX Runtime.
_STEPS = {
    EAGER: _eager(),
    EAGER_HALF: _eager(".half()"),
    EAGER_MATH: _MATH,
    "torchscript": _scripted(),
    "torchscript-frozen": _scripted("module = torch.jit.freeze(module)"),
    "onnx-reference": _REFERENCE_EVALUATOR,
    PT2: _EXPORTED,
    AOT_INDUCTOR: _COMPILED,
}
