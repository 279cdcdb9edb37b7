"""How much is measured: all of it, or what two minutes hold."""

from dataclasses import dataclass

from benchmarks.inference.peers import PEERS
from benchmarks.inference.work import SIZES


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Shapes, peers, and repetitions: of a shape, of a pass over the trained model's test split, of a start.

    `own_batches` is how many of the test split's batches make a pass; None is all.
    """

    sizes: tuple[tuple[int, int], ...]
    peers: tuple[str, ...]
    repetitions: int
    own_repetitions: int
    own_batches: int | None
    starts: int


# What half an hour holds on two cores, the trainings included.
FULL = Plan(sizes=SIZES, peers=tuple(PEERS), repetitions=12, own_repetitions=12, own_batches=None, starts=5)
QUICK = Plan(
    sizes=((1, 16), (8, 128)),
    peers=("optimum-plain", "optimum-O3", "eager", "transformer-encoder", "optimum-plain-int8-channel"),
    repetitions=9,
    own_repetitions=5,
    own_batches=40,
    starts=2,
)
