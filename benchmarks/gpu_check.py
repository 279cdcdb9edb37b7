"""Proves Ferry's exports on an NVIDIA GPU and measures them there: `make gpu-check`.

Models of every mechanism and task are exported here and run on the device: eager PyTorch in float32, float16 and
bfloat16, TorchScript after `.to("cuda")`, and ONNX Runtime's CUDA provider at every optimisation with TF32 off. Each
answers the whole grid, empty rows, holes and left padding among it, within the limit that follows from eager PyTorch on
the CPU; every invariance is measured; every float node must have run on the GPU. Then latencies are measured. All of it
goes to `results/gpu-<device>.json`.
"""

import copy
import logging
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import click
import torch
from tqdm import tqdm

from benchmarks.gpu_models import TIMED_WEIGHTS, build, model_to_time, models_to_check
from benchmarks.gpu_proof import DeviceProof, describe_proofs, prove_on_device
from benchmarks.gpu_runtimes import missing_for_torch, open_session
from benchmarks.latency import RUNS, WARM_UP, Latency, measure_latency, onnxruntime_candidate, torch_candidate
from benchmarks.results import RESULTS, describe_machine, describe_versions, write_result
from benchmarks.tolerance_models import Architecture
from export.errors import FerryError
from export.files import dump_json
from export.model import model_limits
from export.onnx_export import ONNX_FILE
from export.proof.precision import BFLOAT16, FLOAT16, FLOAT32, PRECISIONS
from export.proof.runtimes import load_eager_model, missing_for_cuda
from export.torchscript import TORCHSCRIPT_FILE, load_torchscript

T = TypeVar("T")

CUDA = "cuda"
WRONG, UNABLE = 1, 2
SHAPES = tuple((batch, length, fill) for batch in (1, 8, 64) for length in (16, 128, 512) for fill in (1.0, 0.5))


def check_device(
    device: str,
    results: Path,
    *,
    models: Sequence[Architecture],
    timed: Architecture,
    shapes: Sequence[tuple[int, int, float]] = SHAPES,
    warm_up: int = WARM_UP,
    runs: int = RUNS,
    show: bool = True,
) -> tuple[Path, list[DeviceProof], list[Latency]]:
    """Prove and time models on a device, and write what was found.

    Args:
        device: a key of PROVIDERS; the rest of this file knows no other difference between CPU and GPU.
        results: the folder of the result file.
        models: those that are proven.
        timed: the one that is timed.
        shapes: (batch, length, fill) of the latency table.
        warm_up: runs of each candidate before those that count.
        runs: runs that count.
        show: whether progress is shown on a terminal.

    Raises:
        FerryError: if something can't be loaded on the device, or can't run at all.
    """
    progress = _Progress(show)
    # TF32 makes CUDA differ by 1e-3; this is PyTorch's switch, ONNX Runtime has its own.
    torch.set_float32_matmul_precision("highest")
    proofs = [
        prove_on_device(model, build(model), device, track=progress.named(model.name))
        for model in progress(models, "models")
    ]
    latencies = time_model(timed, device, shapes, warm_up=warm_up, runs=runs, progress=progress)
    about = describe_device(device)
    document = {
        "machine": describe_machine(),
        "device": about,
        "versions": describe_versions(),
        "settings": {
            "float32_matmul_precision": torch.get_float32_matmul_precision(),
            "fp16_reduced_precision_reduction": torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
            "bf16_reduced_precision_reduction": torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
        },
        "passed": not any(proof.failures for proof in proofs),
        "models": [proof.to_json() for proof in proofs],
        "latency": {"model": timed.name, "warm_up": warm_up, "rows": [asdict(row) for row in latencies]},
    }
    file = results / f"gpu-{re.sub('[^a-z0-9]+', '-', about['name'].lower()).strip('-')}.json"
    write_result(file, dump_json(document).encode())
    return file, proofs, latencies


def time_model(
    timed: Architecture,
    device: str,
    shapes: Sequence[tuple[int, int, float]],
    *,
    warm_up: int,
    runs: int,
    progress: "_Progress",
) -> list[Latency]:
    """Measure eager in three precisions, TorchScript and ONNX Runtime on a device."""
    files = build(timed, TIMED_WEIGHTS)
    eager = load_eager_model(files.__getitem__)
    scripted, _ = load_torchscript(files[TORCHSCRIPT_FILE])
    candidates = {
        **{
            f"eager-{precision}": torch_candidate(copy.deepcopy(eager).to(device, PRECISIONS[precision].dtype), device)
            for precision in (FLOAT32, FLOAT16, BFLOAT16)
        },
        "torchscript-float32": torch_candidate(scripted.to(device), device),
        "onnxruntime-float32": onnxruntime_candidate(open_session(files[ONNX_FILE], device), device),
    }
    vocab_size = model_limits(timed.config).vocab_size
    return [
        row
        for shape in progress(shapes, "latency")
        for row in measure_latency(candidates, [shape], vocab_size, warm_up=warm_up, runs=runs)
    ]


def describe_device(device: str) -> dict[str, Any]:
    """Return the kind of device, and nothing that tells one from another of its kind."""
    if device != CUDA:
        return {"name": device}
    properties = torch.cuda.get_device_properties(0)
    return {
        "name": properties.name,
        "compute_capability": f"{properties.major}.{properties.minor}",
        "memory_gib": round(properties.total_memory / 2**30, 1),
        "multiprocessors": properties.multi_processor_count,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),  # type: ignore[no-untyped-call]
    }


class _Progress:
    """Shows bars on a terminal while items are handed on."""

    def __init__(self, show: bool, prefix: str = "gpu-check") -> None:
        self._show = show
        self._prefix = prefix

    def named(self, name: str) -> "_Progress":
        return _Progress(self._show, name)

    def __call__(self, items: Sequence[T], label: str, /) -> Iterable[T]:
        # None: tqdm shows a bar on terminals only.
        disable = None if self._show else True
        bar: Iterable[T] = tqdm(items, desc=f"{self._prefix}: {label}", leave=False, disable=disable)
        return bar


def describe_latencies(latencies: Sequence[Latency]) -> str:
    """Say, for a person, the median of each candidate on each shape, and the spread."""
    lines = [f"{'batch × length':>14} {'fill':>5}  {'candidate':22} {'median ms':>9}  {'10 % … 90 %':>17}"]
    for row in latencies:
        spread = f"{row.p10_ms:.2f} … {row.p90_ms:.2f}"
        shape = f"{row.batch} × {row.length}"
        lines.append(f"{shape:>14} {row.fill:5.2f}  {row.candidate:22} {row.median_ms:9.2f}  {spread:>17}")
    return "\n".join(lines)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--results", type=click.Path(path_type=Path), default=RESULTS, help="Folder of the result file.")
def main(results: Path) -> None:
    """Prove the exports on this machine's NVIDIA GPU and measure latencies there.

    Writes gpu-<device>.json into the folder of results. It takes some minutes and needs no trained model: models of
    every mechanism and task are built and exported for it.

    Exit codes: 0 all holds; 1 something does not, and the file says what; 2 this machine can't do it.
    """
    missing = [*missing_for_cuda(), *missing_for_torch()]
    if missing:
        click.echo(
            "gpu-check needs an NVIDIA GPU that PyTorch and ONNX Runtime can use; here is what is missing:", err=True
        )
        for sentence in missing:
            click.echo(f"  {sentence}.", err=True)
        sys.exit(UNABLE)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    try:
        file, proofs, latencies = check_device(CUDA, results, models=models_to_check(), timed=model_to_time())
    except (FerryError, OSError) as error:
        click.echo(f"gpu-check: {error}", err=True)
        sys.exit(WRONG)
    click.echo(describe_proofs(proofs))
    click.echo(describe_latencies(latencies))
    failures = [(proof.model, failure) for proof in proofs for failure in proof.failures]
    for model, failure in failures:
        click.echo(f"{model}, {failure.backend}, {failure.where}: {failure.reason}", err=True)
    if failures:
        click.echo(f"gpu-check: {len(failures)} failures; {file} holds all of them", err=True)
        sys.exit(WRONG)
    click.echo(f"gpu-check: passed; {file}")


if __name__ == "__main__":
    main()
