"""The command: `python -m benchmarks.training`."""

from pathlib import Path
from typing import Any

import click

from benchmarks.command import PEERS_PYTHON, told_failures
from benchmarks.parts import WORK, Part, Table, write_part


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--quick", is_flag=True, help="A minute: fewer tokens, a smaller model.")
@click.option("--threads", type=click.IntRange(min=1), default=2, show_default=True, help="Of PyTorch, on both sides.")
@click.option(
    "--peers",
    "python",
    type=click.Path(path_type=Path),
    default=PEERS_PYTHON,
    help="Interpreter of the peers' environment; `make bench` makes it.",
)
@click.option("--parts", type=click.Path(path_type=Path), default=WORK / "parts", help="Folder that gets the result.")
def main(quick: bool, threads: int, python: Path, parts: Path) -> None:
    """Time training, ours against Hugging Face's Trainer, and put the curves of the loss side by side.

    Leaves a part for `python -m benchmarks.report`.

    Exit codes: 0 measured; 1 a training ended early; 2 asked wrongly.
    """
    from benchmarks.training.measure import QUICK, measure  # torch is imported when there is work for it

    with told_failures("training"):
        measured = measure(python, threads=threads, **(QUICK if quick else {}))
        file = write_part(parts, describe(measured))
    ratio = measured["ratio"]
    click.echo(f"training_tokens  {ratio['median']:.2f}  [{ratio['low']:.2f}, {ratio['high']:.2f}]  {ratio['peer']}")
    click.echo(f"training: {file}")


def describe(measured: dict[str, Any]) -> Part:
    """Say what `measure` found, as the report takes it."""
    trainings = Table(
        title="Training",
        columns=["training", "tokens/s", "validation loss", "accuracy (%)"],
        rows=[
            [
                training["name"],
                f"{training['tokens_per_second']:,}",
                f"{training['validation']['loss']:.3f}",
                f"{100 * training['validation']['accuracy']:.1f}",
            ]
            for training in measured["trainings"]
        ],
    )
    pairs = Table(
        title="Training, pair by pair",
        columns=["ours", "theirs", "ours / theirs", "95 %"],
        rows=[
            [pair["ours"], pair["peer"], f"{pair['median']:.2f}", f"{pair['low']:.2f} … {pair['high']:.2f}"]
            for pair in measured["ratios"]
        ],
    )
    return Part(
        name="training", ratios={"training_tokens": measured["ratio"]}, measured=measured, tables=[trainings, pairs]
    )


if __name__ == "__main__":
    main()
