"""Where an ONNX file spends its time, operator by operator: `python -m benchmarks.profile_operators FILE`.

ONNX Runtime times every node of the optimised graph; the clock costs small nodes more than large ones, so the sum is
above the latency that `make bench` finds. The files of `make bench` stay in build/bench/ours and build/bench/peers-….
"""

import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

RUNS = 10
WARM_UP = 2
_KERNEL_TIME = "_kernel_time"


@dataclass(frozen=True, kw_only=True)
class OperatorTime:
    """An operator's nodes and their milliseconds in one run, and their share of all nodes' time."""

    operator: str
    nodes: float
    milliseconds: float
    share: float


def sum_events(events: Sequence[Mapping[str, Any]], *, skip: int) -> list[OperatorTime]:
    """Add up ONNX Runtime's events by operator, the slowest first; the first `skip` runs are left out.

    Raises:
        ValueError: if there are no more runs than are left out.
    """
    runs = sorted(event["ts"] for event in events if event["name"] == "model_run")
    if len(runs) <= skip:
        raise ValueError(f"the profile holds {len(runs)} runs; more than {skip} are needed.")
    counted = len(runs) - skip
    microseconds: dict[str, float] = defaultdict(float)
    nodes: dict[str, int] = defaultdict(int)
    for event in events:
        if event["cat"] == "Node" and event["name"].endswith(_KERNEL_TIME) and event["ts"] >= runs[skip]:
            microseconds[event["args"]["op_name"]] += event["dur"]
            nodes[event["args"]["op_name"]] += 1
    total = sum(microseconds.values())
    return [
        OperatorTime(
            operator=name, nodes=nodes[name] / counted, milliseconds=spent / counted / 1e3, share=spent / total
        )
        for name, spent in sorted(microseconds.items(), key=lambda item: -item[1])
    ]


def profile(model: bytes, size: tuple[int, int], fill: str, *, runs: int = RUNS) -> list[OperatorTime]:
    """Run a model with profiling on one shape and fill of the benchmark."""
    import onnxruntime as ort

    from benchmarks.inference.options import session_options
    from benchmarks.inference.sessions import feed
    from benchmarks.inference.work import make_batch

    with tempfile.TemporaryDirectory() as folder:
        options = session_options()
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder) / "profile")
        session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        inputs = feed(session, make_batch(*size, fill))
        for _ in range(WARM_UP + runs):
            session.run(None, inputs)
        events = json.loads(Path(session.end_profiling()).read_text("utf-8"))
    return sum_events(events, skip=WARM_UP)


def render(times: Sequence[OperatorTime]) -> str:
    """Write one line an operator, for a person."""
    lines = [f"{'operator':28} {'nodes':>6} {'ms':>9} {'share':>7}"]
    lines += [f"{row.operator:28} {row.nodes:6g} {row.milliseconds:9.3f} {row.share:7.1%}" for row in times]
    return "\n".join([*lines, f"{'all':28} {'':6} {sum(row.milliseconds for row in times):9.3f}"])


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--batch", default=8, show_default=True, type=click.IntRange(min=1), help="Rows.")
@click.option(
    "--length", default=128, show_default=True, type=click.IntRange(1, 512), help="Tokens of the longest row."
)
@click.option(
    "--fill", default="full", show_default=True, type=click.Choice(["full", "half"]), help="As in the tables."
)
@click.option("--runs", default=RUNS, show_default=True, type=click.IntRange(min=1), help="Runs that count.")
def main(file: Path, batch: int, length: int, fill: str, runs: int) -> None:
    """Show how long each kind of operator of an ONNX file takes.

    Exit codes: 0 shown; 2 the file can't be read.
    """
    try:
        model = file.read_bytes()
    except OSError as error:
        click.echo(f"profile: {file} can't be read: {error.strerror}.", err=True)
        sys.exit(2)
    click.echo(render(profile(model, (batch, length), fill, runs=runs)))


if __name__ == "__main__":
    main()
