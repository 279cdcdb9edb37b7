"""One table over precisions: what each ONNX file costs in accuracy, and what it weighs.

Latency is no part of a proof, which holds no clock value; benchmarks measure it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from export.onnx_export import ONNX_FILE
from export.precision_files import OPTIONAL_FILES
from export.proof.invariance import Invariance
from export.proof.runtimes import BACKENDS
from export.proof.task_metrics import TaskMetrics

# Who speaks for a file: ONNX Runtime on the CPU as users run it.
SPEAKERS = {
    file: next(
        backend.name for backend in BACKENDS if backend.file == file and backend.name.startswith("onnxruntime-cpu-all")
    )
    for file in (ONNX_FILE, *OPTIONAL_FILES)
}


@dataclass(frozen=True, kw_only=True)
class PrecisionRow:
    """One file: its size, accuracy and macro-F1 on the test split, and the largest difference that a law found.

    `lost` is the accuracy below eager's, a fraction of all answers, and `budget` what may be lost; None where each
    label is compared instead.
    """

    file: str
    precision: str
    bytes: int
    accuracy: float
    macro_f1: float
    lost: float
    budget: float | None
    invariance: float


def precision_table(
    sizes: Mapping[str, int], task: TaskMetrics, invariances: Sequence[Invariance]
) -> list[PrecisionRow]:
    """Build the table of the files that were judged.

    Args:
        sizes: of each file in bytes.
        task: what the test split says; the first backend is eager.
        invariances: what the laws say.
    """
    found = {part.backend: part for part in task.backends}
    rows = []
    for file, size in sizes.items():
        part = found.get(SPEAKERS[file])
        if part is None:
            continue
        rows.append(
            PrecisionRow(
                file=file,
                precision=part.precision,
                bytes=size,
                accuracy=part.accuracy,
                macro_f1=part.macro_f1,
                lost=task.backends[0].accuracy - part.accuracy,
                budget=part.budget,
                invariance=max((law.max_difference for law in invariances if law.backend == part.backend), default=0.0),
            )
        )
    return rows
