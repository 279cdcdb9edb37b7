"""What a person watches while a model trains: a progress bar, and scalars for TensorBoard."""

import os
import resource
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from torch import nn
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

from export.artifact.card import FIGURES

# Every scalar costs a write; the curves are smooth enough at this distance.
STEPS_BETWEEN_SCALARS = 10


class Monitor:
    """Shows every step on a progress bar and writes every tenth to TensorBoard event files.

    Scalars: loss, learning rate, gradient norm (whole, and of each layer before clipping), kept tokens per second, peak
    memory in MiB, share of the threads' time that was computed with, and the metrics of validation.
    """

    def __init__(
        self, folder: Path, *, steps_per_epoch: int, threads: int, first_step: int = 0, show: bool = True
    ) -> None:
        """Open an event file in `folder`; the bar is drawn if `show`, and if standard error is a terminal.

        TensorBoard leaves out what earlier files in the folder say of `first_step` and later.
        """
        self.writer = SummaryWriter(str(folder), purge_step=first_step or None)
        self.steps_per_epoch = steps_per_epoch
        self.threads = threads
        self.show = show
        self.epoch = 0
        self.bar = self._open_bar(0, 0)
        self.tokens = 0
        self.wall, self.cpu = time.perf_counter(), time.process_time()

    def __enter__(self) -> Self:
        # The writer's thread hands an error of the disk on to the next call here; it need not be told twice.
        self._hook = threading.excepthook
        threading.excepthook = lambda told: None if isinstance(told.exc_value, OSError) else self._hook(told)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.close()
        try:
            self.writer.close()
        finally:
            threading.excepthook = self._hook

    def start_epoch(self, epoch: int, *, done: int = 0) -> None:
        """Draw a new bar for an epoch, counted from 0, of which `done` steps are already done."""
        self.bar.close()
        self.epoch = epoch
        self.bar = self._open_bar(epoch, done)

    def step(self, step: int, *, loss: float, learning_rate: float, norm: float, tokens: int, model: nn.Module) -> None:
        """Record one optimiser step; gradients must still be in place."""
        self.tokens += tokens
        self.bar.update()
        if step % STEPS_BETWEEN_SCALARS:
            return
        wall, cpu = time.perf_counter(), time.process_time()
        elapsed = max(wall - self.wall, 1e-9)
        scalars = {
            "train/loss": loss,
            "train/learning_rate": learning_rate,
            "train/gradient_norm": norm,
            "speed/tokens_per_second": self.tokens / elapsed,
            "speed/utilisation": (cpu - self.cpu) / elapsed / self.threads,
            "speed/peak_memory_mib": peak_memory_mib(),
        }
        scalars |= {f"gradient_norm/{layer}": value for layer, value in gradient_norms(model).items()}
        for name, value in scalars.items():
            self.writer.add_scalar(name, value, step)
        self.bar.set_postfix(loss=f"{loss:.3f}", norm=f"{norm:.2f}", tokens=f"{self.tokens / elapsed:,.0f}/s")
        self.tokens, self.wall, self.cpu = 0, wall, cpu

    def validated(self, step: int, metrics: dict[str, float], *, note: str) -> None:
        """Record the metrics of validation and say them on a line of their own."""
        for name, value in metrics.items():
            self.writer.add_scalar(f"validation/{name}", value, step)
        figures = ", ".join(f"{FIGURES[name]} {100 * value:.2f} %" for name, value in metrics.items())
        self.bar.close()
        if self.show:
            tqdm.write(f"  epoch {self.epoch + 1}: validation {figures}{note}", file=sys.stderr)

    def flush(self) -> None:
        """Write what was recorded so far, so that no kill can take it."""
        self.writer.flush()

    def _open_bar(self, epoch: int, done: int) -> "tqdm[None]":
        return tqdm(
            initial=done,
            total=self.steps_per_epoch,
            desc=f"epoch {epoch + 1}",
            unit="step",
            disable=None if self.show else True,
            leave=False,
        )


def gradient_norms(model: nn.Module) -> dict[str, float]:
    """Return the Euclidean norm of the gradient of each layer: the parameters that share a module."""
    squares: dict[str, float] = {}
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            layer = name.rpartition(".")[0]
            squares[layer] = squares.get(layer, 0.0) + float(parameter.grad.norm()) ** 2
    return {layer: square**0.5 for layer, square in squares.items()}


def peak_memory_mib() -> float:
    """Return the most memory that this process has held, in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux counts in KiB, macOS in bytes.
    return peak / 2**20 if os.uname().sysname == "Darwin" else peak / 2**10
