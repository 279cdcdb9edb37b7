"""Makes the results of `make bench` out of the parts that were measured: `python -m benchmarks.report`.

`cpu.json` has everything, `cpu.md` the tables, `cpu-latency.png` the latencies; where they were measured,
`cpu-precisions.png` has the accuracy of the precisions against their speed, and `cpu-training.png` the curves of the
loss.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from benchmarks.command import told_failures
from benchmarks.parts import WORK, Part, Table, merge, read_parts
from benchmarks.results import RESULTS, write_result
from export.files import dump_json

JSON_FILE, TABLES_FILE = "cpu.json", "cpu.md"
LATENCY_PICTURE, PRECISION_PICTURE, TRAINING_PICTURE = "cpu-latency.png", "cpu-precisions.png", "cpu-training.png"


def report(parts: Sequence[Part], results: Path) -> list[Path]:
    """Write all results of some parts and return the files.

    Raises:
        ValueError: if two parts give a ratio of one name.
        OSError: if a file can't be written.
    """
    from benchmarks.pictures import draw_latencies, draw_precisions
    from benchmarks.training.picture import draw_curves

    document = merge(parts)
    pictures = {}
    for part in parts:
        if "latency" in part.measured:
            pictures[LATENCY_PICTURE] = draw_latencies(part.measured["latency"])
        if "precisions" in part.measured:
            pictures[PRECISION_PICTURE] = draw_precisions(part.measured["precisions"])
        if "trainings" in part.measured:
            pictures[TRAINING_PICTURE] = draw_curves(part.measured)
    # All of them are made before the first is written.
    files = {
        JSON_FILE: dump_json(document).encode(),
        TABLES_FILE: render_tables(document, [table for part in parts for table in part.tables]).encode(),
        **pictures,
    }
    for name, data in files.items():
        write_result(results / name, data)
    return [results / name for name in files]


def render_tables(document: Mapping[str, Any], tables: Sequence[Table]) -> str:
    """Write the ratios and all tables as Markdown."""
    machine = document["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in document["versions"].items())
    ratios = [
        [f"`{name}`", f"{row['median']:.2f}", f"{row['low']:.2f} … {row['high']:.2f}", row["peer"]]
        for name, row in sorted(document["ratios"].items())
    ]
    about = [
        "# Speed on the CPU, in one run",
        "",
        f"{machine['processor']}, {machine['cores']} cores; Python {machine['python']}, {versions}. Written by "
        "`make bench`.",
        "",
        "A ratio above 1 says that ours is faster, but for `floor_…`, which is ours by the floor. Ratios are paired "
        "within a repetition; the interval is the bootstrap's of the median, 95 %.",
        "",
    ]
    named = [Table(title="Ratios", columns=["name", "median", "95 %", "against"], rows=ratios), *tables]
    left_out = [f"- {reason}" for reason in document["left_out"]]
    return "\n".join(
        [
            *about,
            *(line for table in named for line in _render(table)),
            *(["## Left out", "", *left_out, ""] if left_out else []),
        ]
    )


def _render(table: Table) -> list[str]:
    return [
        f"## {table.title}",
        "",
        f"| {' | '.join(table.columns)} |",
        f"| --- |{' ---: |' * (len(table.columns) - 1)}",
        *(f"| {' | '.join(row)} |" for row in table.rows),
        "",
    ]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--parts", type=click.Path(path_type=Path), default=WORK / "parts", help="Folder of what was measured.")
@click.option("--results", type=click.Path(path_type=Path), default=RESULTS, help="Folder of the result files.")
def main(parts: Path, results: Path) -> None:
    """Write cpu.json, cpu.md and the pictures.

    Exit codes: 0 written; 1 the parts are not of one run; 2 asked wrongly.
    """
    with told_failures("report"):
        files = report(read_parts(parts), results)
    for file in files:
        click.echo(f"report: {file}")


if __name__ == "__main__":
    main()
