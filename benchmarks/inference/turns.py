"""Taking turns: in each repetition every candidate answers once, in an order of its own, and nobody else works."""

import random
import time
from collections.abc import Callable, Mapping
from typing import Protocol

# A repetition of a candidate answers for at least so long, in seconds; what counts is the mean of its answers.
LEAST = 0.03
MOST_ANSWERS = 32
# Threads of a library spin for a while after an answer, in seconds; the next candidate waits for them.
SETTLE = 0.01
WARM_UP = 2
# After so many repetitions the candidates are renewed.
RENEWED = 4


class Ready(Protocol):
    """A candidate with its batches at hand."""

    def answer(self, times: int) -> list[float]:
        """Answer so many times and return the seconds of each."""
        ...


def take_random_turns(
    candidates: Mapping[str, Ready],
    repetitions: int,
    *,
    seed: int = 0,
    renew: Callable[[random.Random], object] = lambda _: None,
    after_each: Callable[[], object] = lambda: None,
    pause: Callable[[float], object] = time.sleep,
) -> dict[str, list[float]]:
    """Return the seconds of an answer, for each candidate one number a repetition.

    The first of several answers in a row is not counted: what it needs lies in no cache. `renew` opens the candidates
    anew, in an order that it draws, and warms them up.
    """
    times = {}
    for name, candidate in candidates.items():
        seconds = min(candidate.answer(WARM_UP))
        times[name] = min(MOST_ANSWERS, max(1, round(LEAST / seconds)))
        pause(SETTLE)
    measured: dict[str, list[float]] = {name: [] for name in candidates}
    order = list(candidates)
    draws = random.Random(seed)
    for repetition in range(repetitions):
        if repetition and repetition % RENEWED == 0:
            renew(draws)
        draws.shuffle(order)
        for name in order:
            cold = 1 if times[name] > 1 else 0
            answers = candidates[name].answer(times[name] + cold)[cold:]
            measured[name].append(sum(answers) / len(answers))
            pause(SETTLE)
        after_each()
    return measured
