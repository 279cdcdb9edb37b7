"""From segments and losses to figures: tokens per second, paired ratios with their interval, smooth curves."""

from collections.abc import Sequence

import numpy as np

from benchmarks.training.arms import Training

# The first segment of a training chooses kernels and fills the allocator.
WARM_UP = 1


def tokens_per_second(training: Training) -> float:
    """Return real tokens per second of wall time, without the warm-up."""
    return sum(training.tokens[WARM_UP:]) / sum(training.seconds[WARM_UP:])


def paired_ratios(ours: Training, theirs: Training) -> list[float]:
    """Return their time a token over ours, for each pair of segments of one round, without the warm-up.

    A longer training has rounds of its own at the end; these have no pair.
    """
    pairs = zip(
        zip(ours.tokens, ours.seconds, strict=True), zip(theirs.tokens, theirs.seconds, strict=True), strict=False
    )
    ratios = [(their_seconds / theirs_) / (seconds / ours_) for (ours_, seconds), (theirs_, their_seconds) in pairs]
    return ratios[WARM_UP:]


def median_with_interval(ratios: Sequence[float], *, seed: int = 0, draws: int = 10_000) -> dict[str, float]:
    """Return the median and its 95 % interval by the percentile bootstrap (Efron 1979).

    Raises:
        ValueError: if there are no ratios.
    """
    if not ratios:
        raise ValueError("there is no pair of segments to compare. Train on more tokens, or make segments shorter.")
    values = np.asarray(ratios)
    drawn = np.random.default_rng(seed).choice(values, (draws, len(values)))
    low, high = np.quantile(np.median(drawn, axis=1), (0.025, 0.975))
    return {"median": round(float(np.median(values)), 4), "low": round(float(low), 4), "high": round(float(high), 4)}


def smooth(losses: Sequence[tuple[int, float]], *, points: int) -> list[tuple[int, float]]:
    """Average the losses of steps over stretches of equally many tokens.

    Args:
        losses: for each step the real tokens seen up to it, ascending, and its loss.
        points: the number of stretches; one without a step has no point.

    Returns:
        For each stretch the tokens seen at its last step, and the mean loss, every step weighted by its tokens.
    """
    seen = np.array([tokens for tokens, _ in losses])
    values = np.array([loss for _, loss in losses])
    weights = np.diff(seen, prepend=0)
    # A step belongs to the stretch in which it ends.
    stretch = -(-seen * points // seen[-1])
    return [
        (int(seen[own][-1]), round(float(np.average(values[own], weights=weights[own])), 5))
        for own in (stretch == number for number in np.unique(stretch))
    ]
