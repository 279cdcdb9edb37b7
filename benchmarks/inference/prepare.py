"""Everything that is timed, made or read before the first clock: our files, the peers', and the trained model's."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from benchmarks.inference import ours, peers
from benchmarks.inference.peers import PEERS
from benchmarks.inference.plan import Plan
from benchmarks.inference.precisions import write_precisions
from benchmarks.inference.work import ENCODER, LABELS, Batch, read_own_batches
from export.files import read_json
from export.model import CONFIG_FILE, model_labels
from export.onnx_export import ONNX_FILE
from export.proof.runtimes import Ids
from models.config import EncoderConfig
from pipeline.run import EXPORT_FOLDER, EXPORT_RECORD, TRAIN_FOLDER, read_record

BENCH, TRAINED = "bench", "trained"
# Whom the trained model is compared with: the form that a user would optimise to.
TRAINED_PEER = "optimum-O3"


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A trained model of ours in each precision, a peer of its dimensions, and the batches that all answer.

    `targets` are of each batch the right labels, (B,) or (B, T).
    """

    ours: dict[str, bytes]
    peer: Path
    batches: list[Batch]
    targets: list[Ids]


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """`model` is eager PyTorch, `ours` its files by name, `files` the peers' ONNX files, `folder` all of the peers'."""

    model: nn.Module
    ours: dict[str, bytes]
    files: dict[str, Path]
    folder: Path
    trained: Trained | None
    left_out: list[str]


def prepare(plan: Plan, run: Path | None, python: Path, work: Path) -> Prepared:
    """Make and read what the plan needs.

    Args:
        plan: what will be measured.
        run: the folder of a run that was trained and exported; None leaves the trained model out.
        python: the interpreter of the peers' environment.
        work: the folder of files that can be made again.

    Raises:
        FerryError: if the peers' models can't be made.
        ValueError: if the run is no run of this version.
    """
    left_out = [] if run else ["the trained model: no run was named that holds one"]
    left_out += [f"{row.title}: not in this plan" for name, row in PEERS.items() if name not in plan.peers]
    job: dict[str, Any] = {
        BENCH: {"bert": peers.bert_arguments(ENCODER, LABELS), "forms": peers.needed_forms(plan.peers)}
    }
    if run is not None:
        job[TRAINED] = {"bert": _trained_arguments(run), "forms": peers.needed_forms([TRAINED_PEER])}
    folder = peers.make_peers(python, work, job)
    model = ours.build_model()
    float32 = ours.export(model)
    integers, without = ours.quantise(float32)
    return Prepared(
        model=model,
        ours={ours.FLOAT32: float32, **integers},
        files={name: _file(folder / BENCH, name) for name in plan.peers if PEERS[name].is_file},
        folder=folder / BENCH,
        trained=None if run is None else _read_trained(run, _file(folder / TRAINED, TRAINED_PEER), plan.own_batches),
        left_out=[*left_out, *without],
    )


def engines_of(names: Sequence[str]) -> dict[str, list[str]]:
    """Return the engines of peers that answer from a process of their own, and the peers of each."""
    engines: dict[str, list[str]] = {}
    for name in names:
        if (engine := PEERS[name].engine) is not None:
            engines.setdefault(engine, []).append(name)
    return engines


def _trained_arguments(run: Path) -> dict[str, int]:
    read_record(run, EXPORT_FOLDER, EXPORT_RECORD, stage="export")
    config = read_json(run / TRAIN_FOLDER / CONFIG_FILE)
    return peers.bert_arguments(EncoderConfig.from_dict(config["encoder"]), len(model_labels(config)))


def _read_trained(run: Path, peer: Path, most: int | None) -> Trained:
    train, float32 = run / TRAIN_FOLDER, (run / EXPORT_FOLDER / ONNX_FILE).read_bytes()
    batches, targets = read_own_batches(train)
    files = {ours.FLOAT32: float32, **write_precisions(float32, train)}
    return Trained(ours=files, peer=peer, batches=batches[:most], targets=targets[:most])


def _file(folder: Path, name: str) -> Path:
    return folder / str(PEERS[name].form) / peers.ONNX_FILE
