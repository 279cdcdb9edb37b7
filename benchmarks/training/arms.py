"""The trainings that are compared, each a process that works only when told to, and their turns."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from export.errors import FerryError

ROOT = Path(__file__).resolve().parents[2]


class WorkerError(FerryError):
    """A training of the comparison has ended before its end."""


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One training: whose it is, and the command that runs it on a job's folder."""

    name: str
    peer: bool
    command: Callable[[Path], list[str]]


def ferry_arm(precision: str) -> Arm:
    worker = [sys.executable, "-m", "benchmarks.training.ferry_worker"]
    return Arm(
        name=f"Ferry, {precision}",
        peer=False,
        command=lambda folder: [*worker, str(folder), "--precision", precision],
    )


def huggingface_arm(python: Path, sampling: str, precision: str, *, attention: str = "sdpa") -> Arm:
    """Take the interpreter of the environment that has transformers and accelerate."""
    worker = [str(python), "-m", "benchmarks.training.huggingface_worker"]
    order = {"random": "random order", "group_by_length": "grouped by length"}[sampling]
    return Arm(
        name=f"Hugging Face Trainer, {order}, {precision}" + (", eager attention" if attention == "eager" else ""),
        peer=True,
        command=lambda folder: [
            *(*worker, str(folder)),
            *("--sampling", sampling, "--precision", precision, "--attention", attention),
        ],
    )


@dataclass(kw_only=True)
class Training:
    """What a training has told: its segments (tokens and seconds), every step's loss, and the result at its end."""

    tokens: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    losses: list[tuple[int, float]] = field(default_factory=list)
    result: dict[str, Any] = field(default_factory=dict)


class Worker:
    """The process of one training; it works while a method runs and sleeps otherwise."""

    def __init__(self, command: Sequence[str], *, threads: int, log: Path) -> None:
        """Start the process, and wait until it could begin its first step."""
        self.training = Training()
        self.finished = False
        self._log = log
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=ROOT,
                env={**os.environ, "OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"},
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._process.kill()
        self._process.communicate()

    def until_ready(self) -> None:
        """Take in what the process tells until it waits, or has told its result.

        Raises:
            WorkerError: if it ends before; names its last words.
        """
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line)
            if "ready" in message:
                return
            if "validation" in message:
                self.training.result = message
                return
            self.training.tokens.append(message["tokens"])
            self.training.seconds.append(message["seconds"])
            self.training.losses += [(seen, loss) for seen, loss in message["losses"]]
            self.finished = message["last"]
        words = self._log.read_text("utf-8", errors="replace").strip()
        raise WorkerError(f"a training of the comparison has ended early (exit code {self._process.wait()}):\n{words}")

    def go(self) -> None:
        """Run one segment, or, once finished, fetch the result."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        self.until_ready()


def take_turns(workers: Mapping[str, Worker], *, show: Callable[[int], None]) -> dict[str, Training]:
    """Let every training run a segment, in an order that rotates by one each round, until all are finished.

    Args:
        workers: the trainings by name, each started and not yet ready.
        show: is told the number of each round that is over, from 1.
    """
    for worker in workers.values():
        worker.until_ready()
    order, rounds = list(workers), 0
    while not all(worker.finished for worker in workers.values()):
        for name in order:
            if not workers[name].finished:
                workers[name].go()
        order = [*order[1:], order[0]]
        rounds += 1
        show(rounds)
    for worker in workers.values():
        worker.go()
    return {name: worker.training for name, worker in workers.items()}
