"""The command `ferry`: one subcommand a stage, and two for those who receive an artifact.

Nothing heavy is imported before a subcommand runs, so that `--help` answers at once.
"""

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from export import __version__
from export.errors import FerryError

DEFAULT_CONFIG = Path(__file__).parent / "configs" / "default.toml"
DEFAULT_RUN = Path("runs/default")
DEFAULT_ARTIFACTS = Path("artifacts")
DEFAULT_VERSION = "1.0.0"
PREDICT_BATCH = 32

# Exit codes: 0 is good; 1, it was tried and is wrong; 2, it was asked wrongly.
WRONG, MISUSED = 1, 2


class Ferry(click.Group):
    """A group that turns expected failures into one sentence and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the subcommand; `--debug` shows the traceback of an expected failure."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # Whoever read our output has left, as `head` does; Python must not complain again at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(WRONG)
        except (FerryError, ValueError, OSError) as error:
            if ctx.params["debug"]:
                raise
            reason = f"{error.filename}: {error.strerror}." if isinstance(error, OSError) and error.filename else error
            click.echo(f"ferry {ctx.invoked_subcommand}: {reason}", err=True)
            ctx.exit(MISUSED if isinstance(error, ValueError) else WRONG)


def refuse_empty(ctx: click.Context, parameter: click.Parameter, value: Path) -> Path:
    # An empty word becomes the working directory, which nobody means.
    if value == Path():
        raise click.BadParameter("must name a folder of its own", ctx=ctx, param=parameter)
    return value


def run_option(command: Any) -> Any:
    return click.option(
        "--run",
        callback=refuse_empty,
        type=click.Path(path_type=Path, file_okay=False),
        default=DEFAULT_RUN,
        show_default=True,
        help="Folder of the run; each stage writes a sub-folder of its own.",
    )(command)


@click.group(cls=Ferry, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="ferry")
@click.option("--debug", is_flag=True, help="Show the traceback of an expected failure.")
def cli(debug: bool) -> None:
    """Carry Transformer encoders from PyTorch into production.

    The stages, in order: train, export, verify, package. Each reads what the one before wrote into the run's folder,
    and skips what is current. The rest is for those who receive an artifact: check, predict.

    Exit codes: 0 good; 1 tried, and it is wrong; 2 asked wrongly.
    """


@cli.command()
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path, dir_okay=False),
    default=DEFAULT_CONFIG,
    help="TOML file: data, tokenizer, model, training.  [default: pipeline/configs/default.toml]",
)
@run_option
def train(config_file: Path, run: Path) -> None:
    """Train what a configuration describes: writes RUN/train.

    The tokenizer is trained on the training split, the best weights are chosen by validation accuracy, and the test
    split is looked at once, at the end. The same seed, machine and number of threads give the same weights. Watch with
    `tensorboard --logdir RUN`.
    """
    from pipeline.train import run_stage

    run_stage(config_file, run)


@cli.command()
@run_option
def export(run: Path) -> None:
    """Export to TorchScript and ONNX: writes RUN/export.

    Two exports of one checkpoint have identical bytes, wherever they are made.
    """
    from pipeline.export import run_stage

    run_stage(run)


@cli.command()
@run_option
@click.option(
    "--provider",
    "providers",
    type=click.Choice(["cpu", "cuda"]),
    multiple=True,
    default=("cpu",),
    show_default=True,
    help="Where ONNX Runtime must run; may be given more than once. One that can't run is an error.",
)
def verify(run: Path, providers: tuple[str, ...]) -> None:
    """Prove the exports right: writes RUN/verify.

    Every backend runs a grid of shapes and masks and the whole test split, and is judged by a tolerance derived from a
    float64 reference. Any failure ends in exit code 1; all failures are listed.
    """
    from pipeline.verify import run_stage

    run_stage(run, providers)


@cli.command()
@run_option
@click.option("--version", default=DEFAULT_VERSION, show_default=True, help="Version of the artifact.")
@click.option(
    "--artifacts",
    type=click.Path(path_type=Path, file_okay=False),
    default=DEFAULT_ARTIFACTS,
    show_default=True,
    help="Folder in which <name>/<version> appears.",
)
def package(run: Path, version: str, artifacts: Path) -> None:
    """Package what was proven: writes ARTIFACTS.

    The folder is ARTIFACTS/<name>/<version>, with <name> from the configuration.

    Refuses what was not verified. An existing version is never changed: identical bytes are "already packaged",
    others are an error that names the next free version.
    """
    from pipeline.package import run_stage

    run_stage(run, version, artifacts)


@cli.command()
@click.argument("artifact", type=click.Path(path_type=Path, exists=True, file_okay=False))
def check(artifact: Path) -> None:
    """Check an artifact that was handed to you.

    Compares every file's hash, the contract in both models, the weights in both models with model.safetensors, and
    replays the goldens on both. All findings are listed.
    """
    from export.artifact.check import check_artifact

    manifest = check_artifact(artifact)
    click.echo(f"check: {artifact} is sound ({manifest['name']} {manifest['version']})")


@cli.command()
@click.argument("artifact", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("texts", nargs=-1)
@click.option(
    "--runtime",
    type=click.Choice(["onnxruntime", "torchscript"]),
    default="onnxruntime",
    show_default=True,
    help="Which of the artifact's models answers.",
)
def predict(artifact: Path, texts: tuple[str, ...], runtime: str) -> None:
    """Classify texts with an artifact.

    Prints a line for each text: its label and the label's probability, separated by a tab.

    Texts come from the arguments or, without any, from standard input, one a line. A text that begins with a hyphen
    goes after `--`.
    """
    from export.artifact.load import Classifier, open_artifact

    if sys.stdout is None or (sys.stdin is None and not texts):
        raise FerryError("standard output, or the standard input that is to be read, is closed.")
    classifier = Classifier(open_artifact(artifact), runtime)
    number = 0
    for batch in batched_texts(texts):
        for answer in classifier.predict(batch):
            number += 1
            click.echo(f"{answer.label}\t{answer.probability:.6f}")
            if answer.dropped:
                click.echo(f"text {number} was cut: {answer.dropped} pieces are beyond the limit", err=True)


def batched_texts(texts: Sequence[str]) -> Iterator[list[str]]:
    """Yield the arguments, or the lines of standard input, a batch at a time.

    Raises:
        FerryError: if a text is not valid UTF-8, after the texts before it.
    """
    from export.contract import decode_text

    # An argument that is not UTF-8 comes from the system with its bytes escaped.
    raws = (os.fsencode(text) for text in texts) if texts else (line.removesuffix(b"\n") for line in sys.stdin.buffer)
    batch: list[str] = []
    for number, raw in enumerate(raws, start=1):
        try:
            batch.append(decode_text(raw))
        except ValueError as error:
            yield batch
            raise FerryError(f"text {number}: {error}") from None
        if len(batch) == PREDICT_BATCH:
            yield batch
            batch = []
    yield batch


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line; `args` without the program's name, or those of this process."""
    # A polite end unwinds like an error: temporary folders go, child processes end.
    for name in ("SIGTERM", "SIGHUP"):
        # Windows has no SIGHUP.
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), lambda number, _: sys.exit(128 + number))
    cli.main(args=None if args is None else list(args), prog_name="ferry")
