"""The command: `python -m benchmarks.inference`."""

from dataclasses import replace
from pathlib import Path

import click

from benchmarks.command import PEERS_PYTHON, told_failures
from benchmarks.inference.plan import FULL, QUICK
from benchmarks.parts import WORK, write_part


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--quick", is_flag=True, help="Two minutes: few shapes, few peers, few repetitions.")
@click.option("--repetitions", type=click.IntRange(min=1), help="Of each shape, instead of the plan's.")
@click.option("--run", type=click.Path(path_type=Path), help="Run whose exported model answers its test split.")
@click.option(
    "--peers",
    "python",
    type=click.Path(path_type=Path),
    default=PEERS_PYTHON,
    help="Interpreter of the peers' environment; `make bench` makes it.",
)
@click.option("--work", type=click.Path(path_type=Path), default=WORK, help="Folder of files that can be made again.")
@click.option("--parts", type=click.Path(path_type=Path), default=WORK / "parts", help="Folder that gets the result.")
def main(quick: bool, repetitions: int | None, run: Path | None, python: Path, work: Path, parts: Path) -> None:
    """Time inference on the CPU, ours against Optimum, Hugging Face, PyTorch, OpenVINO and CTranslate2.

    Leaves a part for `python -m benchmarks.report`.

    Exit codes: 0 measured; 1 a candidate answers wrongly or not at all; 2 asked wrongly.
    """
    from benchmarks.inference.bench import bench  # torch is imported when there is work for it

    plan = QUICK if quick else FULL
    if repetitions is not None:
        plan = replace(plan, repetitions=repetitions, own_repetitions=repetitions)
    with told_failures("inference"):
        if not python.is_file():
            raise ValueError(f"{python} is missing: the peers' environment. Run `make bench`, which makes it.")
        part = bench(plan, run, python, work)
        file = write_part(parts, part)
    for name, ratio in part.ratios.items():
        click.echo(f"{name:28} {ratio['median']:6.2f}  [{ratio['low']:.2f}, {ratio['high']:.2f}]  {ratio['peer']}")
    for reason in part.left_out:
        click.echo(f"left out: {reason}")
    click.echo(f"inference: {file}")


if __name__ == "__main__":
    main()
