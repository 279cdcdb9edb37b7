"""What is measured: every candidate on every shape and fill, and what of it makes which ratio."""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from torch import nn

from benchmarks.inference.checks import check_ours, check_peer
from benchmarks.inference.cuts import cut_sizes, cut_sorted
from benchmarks.inference.floor import build_floor, floor_inputs
from benchmarks.inference.ours import FLOAT32, INT8
from benchmarks.inference.peers import PEERS, Worker, WorkerReady
from benchmarks.inference.ratios import Ratio, fastest, paired_ratio
from benchmarks.inference.sessions import Model, SessionReady
from benchmarks.inference.turns import WARM_UP, Ready, take_random_turns
from benchmarks.inference.work import ENCODER, HALF, LABELS, Batch, make_batch, name_size

# Our rows in integers are named after the forms of export/quantization; this one is compared with the peers'.
INT8_DEFAULT = f"{INT8}-static"
FLOOR = "floor"
SORTED = "/sorted-"
# So many of the peers' sorted forms are measured: those that were fastest in a first try.
SORTED_KEPT = 3
_TRIES = 2


@dataclass(frozen=True, kw_only=True)
class Timed:
    """The seconds of an answer on one shape and fill: for each candidate one number a repetition."""

    batch: int
    length: int
    fill: str
    tokens: int
    seconds: dict[str, list[float]]

    @property
    def size(self) -> str:
        return name_size(self.batch, self.length)


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """What is ready to answer: ONNX files in this process, ours and the peers', and the peers' own processes."""

    model: nn.Module
    ours: dict[str, Model]
    files: dict[str, Model]
    workers: dict[str, Worker]
    peers: Sequence[str] = field(default=tuple(PEERS))


def measure_shape(
    loaded: Loaded, size: tuple[int, int], fill: str, *, repetitions: int, after_each: Callable[[], object]
) -> Timed:
    """Check and time every candidate on one shape and fill.

    Raises:
        FerryError: if a candidate answers wrongly or not at all.
    """
    batch = make_batch(*size, fill)
    candidates: dict[str, Ready] = {}
    for name, model in loaded.ours.items():
        own = SessionReady.of_batches(model, [batch])
        check_ours(name, loaded.model, batch, own.outputs()[0], int8=name != FLOAT32)
        candidates[name] = own
    for name in loaded.peers:
        candidates[name] = _prepare_peer(loaded, name, batch)
    if fill == HALF and len(batch.ids) > 1:
        candidates |= _sorted_forms(loaded, batch)
    lengths = batch.lengths.tolist()
    floor = Model(build_floor(ENCODER, lengths, LABELS))
    candidates[FLOOR] = SessionReady(floor, [floor_inputs(ENCODER, lengths)])
    return Timed(
        batch=size[0],
        length=size[1],
        fill=fill,
        tokens=sum(lengths),
        seconds=take_random_turns(
            candidates,
            repetitions,
            renew=partial(reopen, [*loaded.ours.values(), *loaded.files.values(), floor], candidates.values()),
            after_each=after_each,
        ),
    )


def reopen(models: Sequence[Model], candidates: Iterable[Ready], draws: random.Random) -> None:
    """Open models anew, in an order that is drawn, and let the candidates that are sessions warm up."""
    for model in draws.sample(models, len(models)):
        model.reopen()
    for candidate in candidates:
        if isinstance(candidate, SessionReady):
            candidate.answer(WARM_UP)


def _prepare_peer(loaded: Loaded, name: str, batch: Batch) -> Ready:
    row = PEERS[name]
    ready: SessionReady | WorkerReady
    if row.engine is None:
        ready = SessionReady.of_batches(loaded.files[name], [batch])
    else:
        ready = loaded.workers[row.engine].prepare(name, batch)
    check_peer(row.title, ready.outputs(), len(batch.ids))
    return ready


def _sorted_forms(loaded: Loaded, batch: Batch) -> dict[str, Ready]:
    """Return the peers' files that answer sorted parts of the batch fastest; sorting and cutting cost them no time."""
    forms: dict[str, SessionReady] = {}
    for name, model in loaded.files.items():
        if not PEERS[name].int8:
            for rows in cut_sizes(len(batch.ids)):
                forms[f"{name}{SORTED}{rows}"] = SessionReady.of_batches(model, cut_sorted(batch, rows))
    for name, form in forms.items():
        check_peer(name, form.outputs(), len(batch.ids))
    tried = {name: min(form.answer(_TRIES)) for name, form in forms.items()}
    return {name: forms[name] for name in sorted(tried, key=tried.__getitem__)[:SORTED_KEPT]}


def compare(timed: Timed) -> dict[str, Ratio]:
    """Make the ratios of one shape and fill: the fastest peer's time by ours, and ours by the floor's."""
    seconds, place = timed.seconds, f"{timed.fill}_{timed.size}"
    groups: dict[str, tuple[str, list[str]]] = {
        f"fp32_{place}": (FLOAT32, [name for name, row in PEERS.items() if not (row.int8 or row.beside)]),
        f"fp32_{timed.fill}_sorted_{timed.size}": (FLOAT32, [name for name in seconds if SORTED in name]),
        f"fp32_{timed.fill}_beside_{timed.size}": (FLOAT32, [name for name, row in PEERS.items() if row.beside]),
        f"int8_{place}": (INT8_DEFAULT, [name for name, row in PEERS.items() if row.int8]),
    }
    ratios = {}
    for name, (ours, peers) in groups.items():
        if ours in seconds and any(peer in seconds for peer in peers):
            peer = fastest(seconds, peers)
            ratios[name] = paired_ratio(seconds[peer], seconds[ours], peer=peer)
    floor = f"floor_{timed.size}" if timed.fill != HALF else f"floor_{place}"
    ratios[floor] = paired_ratio(seconds[FLOAT32], seconds[FLOOR], peer=FLOOR)
    return ratios


def compare_each(timed: Timed) -> dict[str, Ratio]:
    """Compare every other candidate with ours of its precision."""
    ratios = {}
    for name, times in timed.seconds.items():
        int8 = name.startswith(INT8) or (name in PEERS and PEERS[name].int8)
        ours = INT8_DEFAULT if int8 else FLOAT32
        if ours in timed.seconds and name != ours:
            ratios[name] = paired_ratio(times, timed.seconds[ours], peer=name)
    return ratios


def measure_own(
    models: Mapping[str, Model],
    batches: Sequence[Batch],
    *,
    repetitions: int,
    after_each: Callable[[], object],
) -> dict[str, list[float]]:
    """Time whole passes over batches of the trained model's own.

    Raises:
        FerryError: if a candidate does not answer.
    """
    candidates = {name: SessionReady.of_batches(model, batches) for name, model in models.items()}
    for name, candidate in candidates.items():
        check_peer(name, candidate.outputs(), sum(len(batch.ids) for batch in batches))
    return take_random_turns(
        candidates, repetitions, renew=partial(reopen, [*models.values()], candidates.values()), after_each=after_each
    )
