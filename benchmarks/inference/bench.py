"""The run: opens everything once, measures shape after shape, and returns the part of the report."""

import json
import subprocess
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path

import click
from tqdm import tqdm

from benchmarks.inference.describe import latency_rows, latency_tables, own_table, start_table
from benchmarks.inference.measure import Loaded, Timed, compare, measure_own, measure_shape
from benchmarks.inference.options import THREADS
from benchmarks.inference.ours import FLOAT32
from benchmarks.inference.peers import Worker
from benchmarks.inference.plan import Plan
from benchmarks.inference.precisions import precision_rows, precision_table
from benchmarks.inference.prepare import TRAINED_PEER, Prepared, engines_of, prepare
from benchmarks.inference.ratios import paired_ratio
from benchmarks.inference.sessions import Model
from benchmarks.inference.start import measure_starts
from benchmarks.inference.work import ENCODER, FILLS, LABELS, TRAINED_BATCH
from benchmarks.parts import Part
from benchmarks.results import write_result

PART = "inference"
# Where our files stay, for `python -m benchmarks.profile_operators`.
OURS_FOLDER = "ours"
_LIST = "import importlib.metadata as m, json; print(json.dumps({d.name: d.version for d in m.distributions()}))"
_TOLD = (
    *("onnxruntime", "torch", "transformers", "optimum", "optimum-onnx", "sentence-transformers"),
    *("openvino", "ctranslate2", "accelerate"),
)


def bench(plan: Plan, run: Path | None, python: Path, work: Path, *, show: bool = True) -> Part:
    """Measure everything in a plan; the arguments are those of `prepare`, and `show` is whether progress is shown.

    Raises:
        FerryError: if a candidate can't be made, answers wrongly, or not at all.
        ValueError: if the run is no run of this version.
    """
    say: Callable[[str], None] = (lambda what: click.echo(f"{PART}: {what}", err=True)) if show else (lambda _: None)
    say("making the models, ours and the peers'")
    prepared = prepare(plan, run, python, work)
    say("loading them")
    turns = len(plan.sizes) * len(FILLS) * plan.repetitions + (plan.own_repetitions if prepared.trained else 0)
    # None: tqdm shows a bar on terminals only.
    with tqdm(total=turns, desc=PART, unit="turn", disable=None if show else True) as bar:
        timed = _measure_shapes(plan, prepared, python, work, bar.update)
        own = _measure_trained(plan, prepared, bar.update)
    say("starting each file in a fresh process")
    saved = {name: work / OURS_FOLDER / f"{name}.onnx" for name in prepared.ours}
    for name, file in saved.items():
        write_result(file, prepared.ours[name])
    starts = measure_starts({**saved, **prepared.files}, plan.starts)
    ratios = {name: ratio for shape in timed for name, ratio in compare(shape).items()}
    rows = latency_rows(timed)
    tables = [*latency_tables(rows), start_table(starts)]
    precisions = []
    if (trained := prepared.trained) is not None:
        ratios[f"trained_batch{TRAINED_BATCH}"] = paired_ratio(own[TRAINED_PEER], own[FLOAT32], peer=TRAINED_PEER)
        precisions = precision_rows(trained.ours, trained.batches, trained.targets, own)
        tables += [own_table(own, sum(len(batch.ids) for batch in trained.batches)), precision_table(precisions)]
    return Part(
        name=PART,
        ratios={name: asdict(ratio) for name, ratio in ratios.items()},
        measured={
            "encoder": {**ENCODER.to_dict(), "labels": LABELS},
            "threads": THREADS,
            "peer_versions": peer_versions(python),
            "latency": rows,
            "trained_seconds": {name: [round(value, 6) for value in seconds] for name, seconds in own.items()},
            "starts": starts,
            **({"precisions": precisions} if precisions else {}),
        },
        tables=tables,
        left_out=prepared.left_out,
    )


def _measure_shapes(
    plan: Plan, prepared: Prepared, python: Path, work: Path, after_each: Callable[[], object]
) -> list[Timed]:
    with ExitStack() as stack:
        loaded = Loaded(
            model=prepared.model,
            ours={name: Model(data) for name, data in prepared.ours.items()},
            files={name: Model(file.read_bytes()) for name, file in prepared.files.items()},
            workers={
                engine: stack.enter_context(closing(Worker(python, engine, names, prepared.folder, work)))
                for engine, names in engines_of(plan.peers).items()
            },
            peers=plan.peers,
        )
        return [
            measure_shape(loaded, size, fill, repetitions=plan.repetitions, after_each=after_each)
            for size in plan.sizes
            for fill in FILLS
        ]


def _measure_trained(plan: Plan, prepared: Prepared, after_each: Callable[[], object]) -> dict[str, list[float]]:
    if prepared.trained is None:
        return {}
    files = {**prepared.trained.ours, TRAINED_PEER: prepared.trained.peer.read_bytes()}
    return measure_own(
        {name: Model(data) for name, data in files.items()},
        prepared.trained.batches,
        repetitions=plan.own_repetitions,
        after_each=after_each,
    )


def peer_versions(python: Path) -> dict[str, str]:
    """Return the versions of the peers and of what they run on."""
    answer = subprocess.run([str(python), "-c", _LIST], check=True, capture_output=True, text=True)
    versions = json.loads(answer.stdout)
    return {name: versions[name] for name in _TOLD if name in versions}
