"""Counts the real tokens of a training's steps, and holds the training between one segment and the next.

A segment begins and ends where a step's forward begins, so it is whole steps long, data and optimiser included. Imports
torch alone, for the peer's environment has no Ferry.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

from torch import Tensor, nn


class Metronome:
    """Sits before the forward of a model in training mode; evaluations pass unseen."""

    def __init__(
        self,
        model: nn.Module,
        *,
        segment_tokens: int,
        wait: Callable[[], None],
        tell: Callable[[dict[str, Any]], None],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Attach to a model whose forward takes `attention_mask` by that name, or second.

        Args:
            model: the model to be trained.
            segment_tokens: the real tokens after which a segment ends with the step.
            wait: returns when the next segment may begin.
            tell: takes {"tokens", "seconds", "losses", "last"}; losses are [tokens seen in all, loss] of each step.
            clock: seconds.
        """
        self._segment_tokens = segment_tokens
        self._wait, self._tell, self._clock = wait, tell, clock
        self._tokens = self._seen = 0
        self._losses: list[tuple[int, float]] = []
        self._started: float | None = None
        self._handle = model.register_forward_pre_hook(self._before_forward, with_kwargs=True)

    def hear(self, loss: float) -> None:
        """Note the loss of the step whose forward came last."""
        self._losses.append((self._seen, loss))

    def finish(self) -> None:
        """End the last segment: the training is over."""
        self._report(last=True)
        self._handle.remove()

    def _before_forward(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not module.training:
            return
        if self._started is None or self._tokens >= self._segment_tokens:
            if self._started is not None:
                self._report(last=False)
            self._wait()
            self._started = self._clock()
        attention_mask: Tensor = kwargs["attention_mask"] if "attention_mask" in kwargs else args[1]
        tokens = int(attention_mask.sum())
        self._tokens += tokens
        self._seen += tokens

    def _report(self, *, last: bool) -> None:
        assert self._started is not None
        seconds = self._clock() - self._started
        self._tell({"tokens": self._tokens, "seconds": seconds, "losses": self._losses, "last": last})
        self._tokens, self._losses = 0, []


class Line:
    """The pipe to the parent: a line of JSON for each message, on what was the standard output.

    Whatever else is printed goes to standard error.
    """

    def __init__(self) -> None:
        self._out: TextIO = os.fdopen(os.dup(sys.stdout.fileno()), "w")
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def tell(self, message: dict[str, Any]) -> None:
        print(json.dumps(message), file=self._out, flush=True)

    def wait(self) -> None:
        """Say that this process is ready, and return when the parent says go.

        Raises:
            SystemExit: if the parent is gone.
        """
        self.tell({"ready": True})
        if not sys.stdin.readline():
            raise SystemExit(1)
