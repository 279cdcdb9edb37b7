"""The command `ferry`: one subcommand a stage, one to sign, and two for those who receive an artifact.

Nothing heavy is imported before a subcommand runs, so that `--help` answers at once.
"""

import math
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from export import __version__
from export.errors import FerryError
from export.files import DISK_FULL
from pipeline.interruption import StoppedError
from pipeline.paths import NamedPath, WorkFolder
from pipeline.streams import STANDARD_OUTPUT, drop_output, name_output, open_closed_streams, say

DEFAULT_RUN = Path("runs/default")
DEFAULT_ARTIFACTS = Path("artifacts")
DEFAULT_VERSION = "1.0.0"
# The keys of `export.profiles.PROFILES`, which takes seconds to import; a test holds both together.
PROFILE_NAMES = ("cpu", "cuda", "web", "portable")
DEFAULT_PROFILE = "cpu"
# Some seconds of search.
DEFAULT_DRAWS = 64
# In points; `export.proof.precision` has it as a share, and a test holds both together.
DEFAULT_BUDGET = 0.5
PREDICT_BATCH = 32
# In MiB; `export.artifact.limits` has it in bytes, and a test holds both together.
DEFAULT_MAX_SIZE = 2048
MIB = 2**20

# Exit codes: 0 is good; 1, it was tried and is wrong; 2, it was asked wrongly.
WRONG, MISUSED = 1, 2
# What a shell reports of a process that Ctrl-C has ended.
INTERRUPTED = 128 + signal.SIGINT


class Ferry(click.Group):
    """A group that turns expected failures into one sentence and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the subcommand; `--debug` shows the traceback of an expected failure."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # Whoever read our output has left, as `head` does.
            drop_output()
            ctx.exit(WRONG)
        except KeyboardInterrupt:
            say(f"ferry {ctx.invoked_subcommand}: interrupted")
            ctx.exit(INTERRUPTED)
        except (FerryError, ValueError, OSError) as error:
            if ctx.params["debug"]:
                raise
            say(f"ferry {ctx.invoked_subcommand}: {reason_of(error)}")
            if isinstance(error, StoppedError):
                ctx.exit(error.exit_code)
            ctx.exit(MISUSED if isinstance(error, ValueError) else WRONG)


def reason_of(error: Exception) -> str:
    """Return the sentence for an expected failure; output that can't be written is given up."""
    if not isinstance(error, OSError) or error.filename is None:
        return str(error)
    if error.filename == STANDARD_OUTPUT:
        drop_output()
        return f"{STANDARD_OUTPUT} can't be written: {error.strerror}. Send it to another place, or make room there."
    remedy = " Make room there, or name another folder." if error.errno in DISK_FULL else ""
    return f"{os.fsdecode(error.filename)}: {error.strerror}.{remedy}"


def refuse_here(ctx: click.Context, parameter: click.Parameter, value: Path) -> Path:
    # Stages would stand among whatever the working directory holds.
    if value == Path():
        raise click.BadParameter("must name a folder of its own", ctx=ctx, param=parameter)
    return value


def refuse_endless(_: click.Context, __: click.Parameter, seconds: float | None) -> float | None:
    """Refuse what is no number of seconds, which lies neither below nor above a bound, and a search without an end."""
    if seconds is not None and not math.isfinite(seconds):
        raise click.BadParameter(f"{seconds} is no number of seconds.")
    return seconds


def run_option(command: Any) -> Any:
    return click.option(
        "--run",
        callback=refuse_here,
        type=WorkFolder(),
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
    and skips what is current. Then sign, and for those who receive an artifact: check, predict.

    Exit codes: 0 good; 1 tried, and it is wrong; 2 asked wrongly; 128 + N ended by signal N.
    """


@cli.command()
@click.option(
    "--config",
    "config_file",
    type=NamedPath(path_type=Path, dir_okay=False),
    help="TOML file: data, tokenizer, model, training. Without it pipeline/configs/default.toml; with --data, "
    "text.toml for tables and tags.toml for CoNLL files.",
)
@run_option
@click.option("--data", "train", multiple=True, help="Own data: a file or folder; may be given more than once.")
@click.option("--validation", multiple=True, help="Own validation data; without it a share of --data is cut off.")
@click.option("--test", multiple=True, help="Own test data; without it a share of --data is cut off.")
@click.option("--text", help="Column of the text; guessed where the names or the number of columns allow.")
@click.option("--label", help="Column of the label; guessed likewise.")
@click.option(
    "--none-label",
    help='Label of the rows that fit no class: they choose the threshold of "none of these" and train nothing.',
)
@click.option("--validation-share", type=float, help="Share that is cut off for validation; a tenth without it.")
@click.option("--test-share", type=float, help="Share that is cut off for test; likewise.")
@click.option(
    "--max-bad-share",
    type=float,
    help="Share of rows that may be bad; they are told and left out. Above it, 0.01 without it, the data is refused.",
)
@click.option("--name", help="Name of the artifact; without it, the configuration's or one made of the data's.")
@click.option("--resume", is_flag=True, help="Go on with an interrupted training, if there is one.")
@click.option("--restart", is_flag=True, help="Discard an interrupted training, if there is one.")
def train(
    config_file: Path | None,
    run: Path,
    name: str | None,
    resume: bool,
    restart: bool,
    **data: Any,
) -> None:
    """Train what a configuration describes: writes RUN/train.

    Own data is CSV, TSV, JSONL or Parquet with a text and a label in each row, or CoNLL with a word and a tag in each
    line. A folder's files named train, validation and test fill the splits. What is guessed, cut off, left out or
    found twice is told.

    The tokenizer is trained on the training split, the best weights, the temperature and the threshold are chosen on
    the validation split, and the test split is looked at once, at the end. The same seed, machine and number of
    threads give the same weights. Watch with `tensorboard --logdir RUN`.

    A training that was interrupted, by Ctrl-C, SIGTERM, a crash or a power cut, leaves its state in RUN/checkpoint.
    Resumed, it gives the weights that it would have given, to the bit.
    """
    if resume and restart:
        raise click.UsageError("--resume and --restart exclude each other; give one of them.")
    from pipeline.checkpoint import Unfinished
    from pipeline.train import run_stage

    unfinished: Unfinished = "resume" if resume else "restart" if restart else "refuse"
    # What is not given is the configuration's.
    given = {field: value for field, value in data.items() if value not in (None, ())}
    run_stage(config_file, run, data=given, name=name, unfinished=unfinished)


@cli.command()
@run_option
@click.option(
    "--profile",
    type=click.Choice(PROFILE_NAMES),
    default=DEFAULT_PROFILE,
    show_default=True,
    help="What the ONNX files are written for.",
)
@click.option(
    "--precision",
    "precisions",
    type=click.Choice(["fp16", "int8"]),
    multiple=True,
    help="Also write model_fp16.onnx or model_int8.onnx; may be given more than once.",
)
@click.option(
    "--int8-form",
    type=click.Choice(["static", "qdq", "dynamic"]),
    help="static: the fastest on ONNX Runtime's CPU, with an operator of its own. qdq: the same function in standard "
    "operators. dynamic: standard operators, and each token has a scale of its own.  [default: static for the profile "
    "cpu, else qdq]",
)
def export(run: Path, profile: str, precisions: tuple[str, ...], int8_form: str | None) -> None:
    """Export to TorchScript, ONNX and .pt2: writes RUN/export.

    A profile is the form of the ONNX files; their function, inputs and outputs are the same in each. cpu: fastest on
    ONNX Runtime's CPU. cuda: for NVIDIA GPUs. web: for ONNX Runtime Web. portable: operators of opset 18 alone, for any
    runtime, ONNX Runtime 1.16.3 among them.

    int8 is calibrated on 512 rows of the training split, which training left in RUN/train. What is not asked for is not
    there afterwards.

    Two exports of one checkpoint have identical bytes, wherever they are made.
    """
    from pipeline.export import Asked, run_stage

    run_stage(run, Asked(profile=profile, precisions=precisions, int8_form=int8_form))


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
@click.option(
    "--search",
    "draws",
    type=click.IntRange(min=0),
    default=DEFAULT_DRAWS,
    show_default=True,
    metavar="N",
    help="Inputs drawn at random beside the grid, steered towards the largest error; a quarter as many again on the "
    "weights times 2 and times 8.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    callback=refuse_endless,
    help="Stop each of these searches after so long; the report tells where that cut one.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the draws.")
@click.option("--compile/--no-compile", "compiled", default=True, help="Whether AOTInductor builds and runs model.pt2.")
@click.option(
    "--accuracy-budget",
    "budget",
    type=click.FloatRange(min=0, max=100),
    default=DEFAULT_BUDGET,
    show_default=True,
    metavar="POINTS",
    callback=refuse_endless,
    help="By how many points the accuracy of model_int8.onnx on the test split may lie below PyTorch's.",
)
def verify(
    run: Path,
    providers: tuple[str, ...],
    draws: int,
    seconds: float | None,
    seed: int,
    compiled: bool,
    budget: float,
) -> None:
    """Prove the exports right: writes RUN/verify.

    Every backend runs a grid of shapes and masks, inputs drawn at random and the whole test split, and is judged by a
    tolerance derived from a float64 reference. A failure is shrunk to the smallest failing input, and the first layer
    that diverges is named. Any failure ends in exit code 1; all failures are listed.
    """
    from export.proof.prove import Effort
    from pipeline.verify import Question, run_stage

    effort = Effort(draws=draws, seconds=seconds, seed=seed)
    run_stage(run, Question(providers=providers, effort=effort, compiled=compiled, accuracy_budget=budget / 100))


@cli.command()
@run_option
@click.option("--version", default=DEFAULT_VERSION, show_default=True, help="Version of the artifact.")
@click.option(
    "--artifacts",
    type=WorkFolder(),
    default=DEFAULT_ARTIFACTS,
    show_default=True,
    help="Folder in which <name>/<version> appears.",
)
def package(run: Path, version: str, artifacts: Path) -> None:
    """Package what was proven: writes ARTIFACTS.

    The folder is ARTIFACTS/<name>/<version>, with <name> from the configuration; its tar, with the same files, is
    ARTIFACTS/<name>/<name>-<version>.tar.gz.

    Refuses what was not verified. An existing version is never changed: identical bytes are "already packaged",
    others are an error that names the next free version; a missing tar is made.
    """
    from pipeline.package import run_stage

    run_stage(run, version, artifacts)


max_size_option = click.option(
    "--max-size",
    type=click.IntRange(min=1),
    default=DEFAULT_MAX_SIZE,
    show_default=True,
    help="MiB that the artifact may have; more is never read. The default is the most that one ONNX file can have, and "
    "what is checked is held in memory. A file that is no model may have 64.",
)


@cli.command()
@click.argument("artifact", type=NamedPath(path_type=Path, exists=True))
@click.option(
    "--public-key",
    type=NamedPath(path_type=Path, dir_okay=False),
    help="Require a signature by this key, an elliptic-curve key in PEM; before it is verified no model is loaded.",
)
@click.option(
    "--signature",
    type=NamedPath(path_type=Path, dir_okay=False),
    help="File of the signature; without it, <name>-<version>.sig beside the artifact.",
)
@max_size_option
def check(artifact: Path, public_key: Path | None, signature: Path | None, max_size: int) -> None:
    """Check an artifact that was handed to you, its folder or its tar.

    Refuses links, devices, names that lead elsewhere, names that are missing, stand twice or do not belong, and too
    many bytes; nothing is unpacked to the disk. Then compares every file's hash, the contract in the models, and the
    weights in them with model.safetensors; replays the goldens; and runs the grid of shapes and masks, and the
    invariances, on the packaged models against float64. All findings are listed.

    Model files are programs: with --public-key, only those whose signature is right are loaded.
    """
    if signature is not None and public_key is None:
        raise click.UsageError("--signature takes a --public-key to verify it with.")
    from export.artifact.check import check_artifact
    from export.artifact.signature import signature_path

    manifest = check_artifact(
        artifact,
        max_size=max_size * MIB,
        public_key=public_key,
        signature=signature,
        tell=lambda note: click.echo(f"check: not judged: {note}", err=True),
    )
    click.echo(f"check: {artifact} is sound ({manifest['name']} {manifest['version']}){told_of(public_key)}")
    unread = signature_path(artifact, manifest)
    if public_key is None and unread.exists():
        click.echo(f"check: its signature {unread} was not checked; give --public-key", err=True)


def told_of(public_key: Path | None) -> str:
    return "" if public_key is None else f", signed by {public_key}"


@cli.command()
@click.argument("artifact", type=NamedPath(path_type=Path, exists=True))
@click.option(
    "--key",
    type=NamedPath(path_type=Path, dir_okay=False),
    required=True,
    help="Private key in PEM, on the curve P-256, P-384 or P-521.",
)
@max_size_option
def sign(artifact: Path, key: Path, max_size: int) -> None:
    """Sign an artifact: writes <name>-<version>.sig beside it.

    The artifact, its folder or its tar, is checked first and stays as it is. One signature is about both: it is a
    bundle of OpenSSF model-signing, and `model_signing verify key` reads it too.

    A key that has a password takes it from the environment's FERRY_KEY_PASSWORD. New keys are made by
    `openssl ecparam -name prime256v1 -genkey -noout -out key.pem` and `openssl ec -in key.pem -pubout -out key.pub`;
    hand the public one out by another way than the artifact.
    """
    from export.artifact.sign import sign_artifact

    password = os.environ.get("FERRY_KEY_PASSWORD")
    signature, signed_before = sign_artifact(artifact, key, password=password, max_size=max_size * MIB)
    click.echo(f"sign: {signature} {'is already signed' if signed_before else 'is signed'}")


@cli.command()
@click.argument("artifact", type=NamedPath(path_type=Path, exists=True))
@click.argument("texts", nargs=-1)
@click.option(
    "--runtime",
    type=click.Choice(["onnxruntime", "torchscript", "pt2"]),
    default="onnxruntime",
    show_default=True,
    help="Which of the artifact's models answers.",
)
@click.option("--input", "source", type=NamedPath(path_type=Path), help="Answer every row of a file.")
@click.option("--output", type=NamedPath(path_type=Path), help="File of the answers; the end of its name says how.")
@click.option("--text", default="", help="Column of the text in --input; guessed where that is possible.")
@click.option("--keep", multiple=True, help="Column of --input that --output repeats; may be given more than once.")
@click.option("--overwrite", is_flag=True, help="Replace an existing --output, once the new one is complete.")
@click.option(
    "--max-bad-share",
    type=float,
    default=0.01,
    show_default=True,
    help="Share of the rows of --input that may be bad.",
)
def predict(
    artifact: Path,
    texts: tuple[str, ...],
    runtime: str,
    source: Path | None,
    output: Path | None,
    text: str,
    keep: tuple[str, ...],
    overwrite: bool,
    max_bad_share: float,
) -> None:
    """Label texts with an artifact, its folder or its tar.

    Prints a line for each text: its label and the label's probability, separated by a tab; the label is empty where
    none of them fits. An artifact that labels words prints a line for each word, and an empty line after each text.

    Texts come from the arguments or, without any, from standard input, one a line. A text that begins with a hyphen
    goes after `--`.

    With --input and --output, both CSV, TSV, JSONL or Parquet, every row of a file is answered: the output has its
    line, the --keep columns, the text, the answer, how many pieces were dropped, and the reason where there is no
    answer. Interrupted, the same command goes on. The output appears when it is complete.
    """
    if (source is None) != (output is None) or (source is not None and texts):
        raise click.UsageError("--input and --output go together, and take no texts besides.")
    if source is not None and output is not None:
        from pipeline.predict import run_stage

        run_stage(
            artifact,
            source,
            output,
            text=text,
            keep=keep,
            runtime=runtime,
            max_bad_share=max_bad_share,
            overwrite=overwrite,
        )
        return
    from export.artifact.load import Prediction, open_artifact, open_model

    if sys.stdout is None or (sys.stdin is None and not texts):
        raise FerryError("standard output, or the standard input that is to be read, is closed.")
    model = open_model(open_artifact(artifact), runtime)
    number = 0
    for batch in batched_texts(texts):
        for answer in model.predict(batch):
            number += 1
            if isinstance(answer, Prediction):
                click.echo(f"{answer.label or ''}\t{answer.probability:.6f}")
            else:
                click.echo(
                    "".join(f"{word.word}\t{word.label or ''}\t{word.probability:.6f}\n" for word in answer.words)
                )
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
    open_closed_streams()
    name_output()
    # A polite end unwinds like an error: temporary folders go, child processes end.
    for name in ("SIGTERM", "SIGHUP"):
        # Windows has no SIGHUP, and `nohup` has it ignored.
        if hasattr(signal, name) and signal.getsignal(getattr(signal, name)) is not signal.SIG_IGN:
            signal.signal(getattr(signal, name), lambda number, _: sys.exit(128 + number))
    try:
        code = cli.main(args=None if args is None else list(args), prog_name="ferry", standalone_mode=False)
    except click.ClickException as error:
        with suppress(OSError):
            error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        say("ferry: interrupted")
        code = INTERRUPTED
    except OSError as error:
        # The help could not be written; a failure with --debug keeps its traceback.
        if error.filename != STANDARD_OUTPUT:
            raise
        say(f"ferry: {reason_of(error)}")
        code = WRONG
    sys.exit(code)
