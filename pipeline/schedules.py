"""Learning-rate schedules: the factor on the peak rate as a pure function of the step.

Each rises linearly from 1/W to 1 over W warm-up steps, then falls its own way until the last step.
"""

import math
from collections.abc import Callable

Schedule = Callable[[int, int, int], float]


def cosine(step: int, warmup: int, total: int) -> float:
    """Half a cosine from 1 to 0 (SGDR, Loshchilov & Hutter 2017, equation 5, one period)."""
    return _warm_up(step, warmup) or 0.5 * (1 + math.cos(math.pi * _progress(step, warmup, total)))


def linear(step: int, warmup: int, total: int) -> float:
    """A straight line from 1 to 0 (BERT, Devlin et al. 2019, appendix A.2)."""
    return _warm_up(step, warmup) or 1 - _progress(step, warmup, total)


def inverse_sqrt(step: int, warmup: int, total: int) -> float:
    """√(W / step) ("Attention Is All You Need", Vaswani et al. 2017, equation 3); W counts as 1 without warm-up."""
    return _warm_up(step, warmup) or math.sqrt(max(warmup, 1) / max(step + 1, warmup, 1))


SCHEDULES: dict[str, Schedule] = {"cosine": cosine, "linear": linear, "inverse_sqrt": inverse_sqrt}


def _warm_up(step: int, warmup: int) -> float:
    """The factor while the rate rises; 0 once it no longer does. Steps count from 0."""
    return (step + 1) / warmup if step < warmup else 0.0


def _progress(step: int, warmup: int, total: int) -> float:
    return min(1.0, (step - warmup) / max(1, total - warmup))
