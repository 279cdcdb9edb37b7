"""Measures what the constants of `export/proof/tolerance.py` rest on: `make tolerance`.

How far do correct backends stand from float64, in units of the limit, and how far do planted faults? Every measurement
goes to `results/tolerance.json`, and `results/tolerance.png` shows their ratios. It takes about a quarter of an hour;
interrupted, it goes on where it stood.
"""

import hashlib
import json
import logging
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from tqdm import tqdm

from benchmarks.results import RESULTS, describe_machine, describe_versions, write_result
from benchmarks.tolerance_models import AXES, WEIGHTS, draw_architectures
from benchmarks.tolerance_picture import draw_ratios
from benchmarks.tolerance_study import BATCHES, LENGTHS, Measurement, measure_architecture, summarise
from export.contract import canonical_json
from export.files import dump_json
from pipeline.run import ROOT, source_hash

ARCHITECTURES = 60
RESULT_FILE = "tolerance.json"
PICTURE_FILE = "tolerance.png"
_UNFINISHED = ROOT / "build" / "tolerance"


def read_measurements(path: Path) -> list[Measurement]:
    """Read the measurements of a result file."""
    return [Measurement(**row) for row in json.loads(path.read_text("utf-8"))["measurements"]]


def render(measurements: list[Measurement]) -> str:
    """Write the result file: what was measured on what, the summary, and one line a measurement."""
    document = {
        "about": "largest errors against float64, in logits; ratios to the limit of export/proof/tolerance.py",
        "machine": describe_machine(),
        "versions": describe_versions(),
        "grid": {"batches": BATCHES, "lengths": [*LENGTHS, "the longest"]},
        "axes": {**AXES, "weights": list(WEIGHTS)},
        "summary": summarise(measurements),
    }
    rows = ",\n".join(f"    {canonical_json(asdict(measurement))}" for measurement in measurements)
    return f'{dump_json(document)[:-3]},\n  "measurements": [\n{rows}\n  ]\n}}\n'


def study(architectures: int, *, unfinished: Path, show: bool = True) -> list[Measurement]:
    """Measure so many architectures; what an interrupted run of the same code has measured is taken over.

    Args:
        architectures: how many are drawn; each has every kind of weights.
        unfinished: the folder where measurements stand until all are there.
        show: whether a bar is shown on a terminal.
    """
    question = canonical_json([architectures, source_hash(), _own_hash(), describe_versions()])
    file = unfinished / f"{hashlib.sha256(question.encode()).hexdigest()[:16]}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    done = _read_lines(file)
    drawn = draw_architectures(architectures)
    with file.open("a", encoding="utf-8") as lines:
        bar = tqdm(drawn, desc="tolerance", initial=len(done), total=len(drawn), disable=None if show else True)
        for architecture in drawn[len(done) :]:
            rows = [asdict(measurement) for measurement in measure_architecture(architecture)]
            lines.write(canonical_json(rows) + "\n")
            lines.flush()
            done.append(rows)
            bar.update()
        bar.close()
    return [Measurement(**row) for rows in done for row in rows]


def _own_hash() -> str:
    own = sorted(Path(__file__).parent.glob("tolerance*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in own)).hexdigest()


def _read_lines(file: Path) -> list[list[dict[str, Any]]]:
    """Read an architecture a line; the last line of an interrupted run may be torn, and is cut off."""
    if not file.exists():
        return []
    text = file.read_text("utf-8")
    whole = text[: text.rfind("\n") + 1]
    write_result(file, whole.encode())
    return [json.loads(line) for line in whole.splitlines()]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--architectures", default=ARCHITECTURES, show_default=True, help="Drawn; each has four kinds of weights."
)
@click.option("--results", type=click.Path(path_type=Path), default=RESULTS, help="Folder of the result files.")
def main(architectures: int, results: Path) -> None:
    """Measure the ratios of correct backends and of planted faults to the limit of verification."""
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    measurements = study(architectures, unfinished=_UNFINISHED)
    write_result(results / RESULT_FILE, render(measurements).encode())
    draw_ratios(results / PICTURE_FILE, measurements)
    summary = summarise(measurements)
    click.echo(f"tolerance: {summary['configurations']} models, largest ratio of a backend {summary['largest_ratio']}")
    for name, row in summary["faults"].items():
        click.echo(f"  {name}: {100 * row['beyond_limit']:.1f} % beyond the limit, median {row['to_limit']['median']}")


if __name__ == "__main__":
    main()
