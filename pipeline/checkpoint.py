"""The state of an unfinished training, from which it goes on bit for bit: RUN/checkpoint.

`state.safetensors` holds the weights, AdamW's moments, torch's random state and the best weights as tensors, and in its
metadata one JSON document: the position, and everything that the weights depend on. It is replaced whole: whenever the
process is killed, the file is the state before or the state after. Batch order and learning rate are pure functions of
the configuration and the step, and nothing in the loop but torch draws random numbers.

`log.txt` tells each start, each write that began and each that ended. A state takes about four times the memory of
the weights on the disk, and as much again while it is replaced.

Does not support state shared by several processes.
"""

import dataclasses
import hashlib
import json
import os
import shutil
import time
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from export import __version__
from export.contract import canonical_json
from export.errors import FerryError
from export.files import flush_to_disk
from pipeline.config import RunConfig
from pipeline.interruption import Interruption, StoppedError
from pipeline.precision import bfloat16_unit

STATE_FILE = "state.safetensors"
PARTIAL_FILE = "state.safetensors.partial"
LOG_FILE = "log.txt"
EVENTS_FOLDER = "tensorboard"

# What is done with an unfinished training that lies in the run folder.
Unfinished = Literal["refuse", "resume", "restart"]


class CheckpointError(FerryError):
    """A state can't be written, or can't be read back."""


@dataclass(kw_only=True)
class Progress:
    """How far a training is: `step` optimiser steps in all, `epoch` whole epochs, `batch` batches of the next one."""

    step: int = 0
    epoch: int = 0
    batch: int = 0
    best_epoch: int = -1
    best: dict[str, float] = field(default_factory=dict)
    # The bytes of model.safetensors; empty before the first validation.
    best_weights: bytes = b""


class Checkpoint:
    """The folder of one unfinished training.

    Used in this order: `find`, `begin`, then `save` whenever `is_due`, and `remove` once the result is in place.
    """

    def __init__(
        self, folder: Path, *, identity: dict[str, Any], every: int, command: str, unfinished: Unfinished = "refuse"
    ) -> None:
        """Describe the training; nothing is read or written yet.

        Args:
            folder: the folder of the state; made by `begin`.
            identity: whatever the weights depend on, by the name that a person knows it by; values as in JSON.
            every: the number of steps between states, at least 1.
            command: the command line of this training, for messages: without --resume and --restart.
            unfinished: what is done with a state that lies there.
        """
        # The process may change its working directory.
        self.folder = folder.absolute()
        self.events_folder = self.folder / EVENTS_FOLDER
        self.interruption = Interruption()
        self._shown = folder
        self._identity = identity
        self._every = every
        self._command = command
        self._unfinished = unfinished
        self._found: tuple[dict[str, Any], dict[str, Tensor]] | None = None
        self._written: int | None = None
        self._started = time.perf_counter()

    @property
    def seconds(self) -> float:
        """The time that the training has taken so far, in all of its processes."""
        return time.perf_counter() - self._started

    def find(self) -> None:
        """Read the state that lies in the folder, if any; changes nothing.

        Raises:
            ValueError: if there is one and `unfinished` is "refuse", or it belongs to another training than this.
            CheckpointError: if it can't be read, or the folder is not Ferry's.
        """
        self._refuse_foreign()
        if not self._holds_state() or self._unfinished == "restart":
            return
        document, tensors = self._read()
        step = document["progress"]["step"]
        if self._unfinished == "refuse":
            raise ValueError(
                f"{self._shown} holds a training that was interrupted at step {step}. "
                f"Go on with `{self._command} --resume`, or discard it with `{self._command} --restart`."
            )
        changes = _changes(document["identity"], self._identity)
        if changes:
            raise ValueError(
                f"the training in {self._shown}, interrupted at step {step}, can't go on, because its weights would "
                "not be those of one run:\n" + "\n".join(f"  {change}" for change in changes) + "\n"
                f"Put that back and go on with `{self._command} --resume`, "
                f"or discard it with `{self._command} --restart`."
            )
        self._found = document, tensors
        self._written = step

    def begin(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> Progress:
        """Make the folder ready, restore the state that was found, and return where the training stands.

        Restored are the model, the optimiser and torch's random state.

        Raises:
            CheckpointError: if the folder can't be written, or the state does not fit the model.
        """
        progress = Progress()
        if self._found is not None:
            document, tensors = self._found
            try:
                progress = _restore(document["progress"], tensors, model, optimizer)
            except (KeyError, TypeError, RuntimeError) as error:
                raise self._damaged(f"it does not fit this model ({error})") from None
            self._started -= document["seconds"]
        try:
            self._make_ready()
        except OSError as error:
            raise self.unwritable("the state of the training", error) from error
        self._found = None
        return progress

    def is_due(self, step: int) -> bool:
        """Whether the state belongs on the disk after so many steps."""
        return step % self._every == 0 or self.interruption.signal is not None

    def save(self, model: nn.Module, optimizer: torch.optim.Optimizer, progress: Progress) -> None:
        """Write the state, and stop if a signal has asked for that.

        Raises:
            CheckpointError: if the state can't be written; the one before is still there.
            StoppedError: names the step, and the command that goes on.
        """
        document, tensors = _gather(progress, model, optimizer)
        data = _pack({**document, "identity": self._identity, "seconds": self.seconds}, tensors)
        try:
            self._log(f"writing step {progress.step}")
            self._replace(data)
            self._written = progress.step
            self._log(f"wrote step {progress.step}")
        except OSError as error:
            raise self.unwritable(f"the state of step {progress.step}", error) from error
        stop = self.interruption.signal
        if stop is not None:
            raise StoppedError(
                f"{stop.name}: stopped at step {progress.step}. Go on with `{self._command} --resume`.",
                signal_number=stop,
            )

    def copy_events(self, target: Path) -> None:
        """Copy the TensorBoard events to where the result is being made."""
        target.mkdir()
        for file in self.events_folder.iterdir():
            shutil.copyfile(file, target / file.name)

    def remove(self) -> None:
        """Remove the folder: the training is finished, or can't be."""
        shutil.rmtree(self.folder)

    def remove_finished(self) -> None:
        """Remove what a finished training left that was killed before it could do so itself."""
        self._refuse_foreign()
        if self._holds_state():
            try:
                document, _ = self._read()
            except CheckpointError:
                # It may be another training's; whoever takes that up is told.
                return
            if _changes(document["identity"], self._identity):
                return
        if self.folder.exists():
            self.remove()

    def unwritable(self, what: str, error: OSError) -> CheckpointError:
        """Return the sentence for an error of the disk: what it kept from being written, and what is safe."""
        kept = (
            f"No earlier state is there: mend that, then go on with `{self._command}`."
            if self._written is None
            else f"The state of step {self._written} is whole: mend that, then go on with `{self._command} --resume`."
        )
        return CheckpointError(f"{what} can't be written to {self._shown.parent}: {error.strerror}. {kept}")

    def _holds_state(self) -> bool:
        return (self.folder / STATE_FILE).exists()

    def _make_ready(self) -> None:
        if self._found is None and self.folder.exists():
            self.remove()
        self.events_folder.mkdir(parents=True, exist_ok=True)
        flush_to_disk(self.folder.parent)
        # Better now than after an hour.
        partial = self.folder / PARTIAL_FILE
        _write(partial, b"tried")
        partial.unlink()
        self._log("started" if self._written is None else f"resumed at step {self._written}")

    def _refuse_foreign(self) -> None:
        if not os.path.lexists(self.folder):
            return
        own = {STATE_FILE, PARTIAL_FILE, LOG_FILE, EVENTS_FOLDER}
        if not self.folder.is_dir() or not own >= set(os.listdir(self.folder)):
            raise CheckpointError(
                f"{self._shown} was not written by Ferry and is never replaced. Choose another run folder."
            )

    def _read(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        path = self.folder / STATE_FILE
        try:
            return _unpack(path.read_bytes())
        except OSError as error:
            raise CheckpointError(f"{self._shown / STATE_FILE} can't be read: {error.strerror}.") from error
        except ValueError as error:
            raise self._damaged(str(error)) from None

    def _replace(self, data: bytes) -> None:
        partial = self.folder / PARTIAL_FILE
        try:
            _write(partial, data)
            os.replace(partial, self.folder / STATE_FILE)
            flush_to_disk(self.folder)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise

    def _log(self, line: str) -> None:
        with (self.folder / LOG_FILE).open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")

    def _damaged(self, reason: str) -> CheckpointError:
        return CheckpointError(
            f"{self._shown / STATE_FILE} is damaged: {reason}. Discard it with `{self._command} --restart`."
        )


def training_identity(config: RunConfig, *, data_sha256: str) -> dict[str, Any]:
    """Return whatever the weights depend on, by the name that a person knows it by."""
    identity: dict[str, Any] = {
        f"{table}.{key}" if isinstance(values, dict) else table: value
        for table, values in config.identity().items()
        for key, value in (values.items() if isinstance(values, dict) else [("", values)])
    }
    identity["the data's SHA-256"] = data_sha256
    identity["Ferry's version"] = __version__
    identity["torch's version"] = torch.__version__
    identity["sentencepiece's version"] = version("sentencepiece")
    identity["the CPU's capability"] = torch.backends.cpu.get_cpu_capability()
    if config.training.precision == "bfloat16" and config.training.device == "cpu":
        identity["the CPU's unit for bfloat16"] = bfloat16_unit()
    if config.training.device == "cuda" and torch.cuda.is_available():
        identity["the GPU"] = torch.cuda.get_device_name()
    # As it comes back: tuples become lists.
    return dict(json.loads(canonical_json(identity)))


def _changes(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    names = [*old, *(name for name in new if name not in old)]
    return [
        f"{name} was {json.dumps(old.get(name))} and is {json.dumps(new.get(name))}."
        for name in names
        if old.get(name) != new.get(name)
    ]


def _gather(
    progress: Progress, model: nn.Module, optimizer: torch.optim.Optimizer
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Collect a training's state: what is a number or a name, and what is a tensor."""
    document = dataclasses.asdict(progress)
    best_weights = document.pop("best_weights")
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for name, parameter in model.named_parameters():
        for slot, tensor in optimizer.state.get(parameter, {}).items():
            tensors[f"optimizer.{name}.{slot}"] = tensor
    tensors["random.cpu"] = torch.get_rng_state()
    if next(model.parameters()).is_cuda:
        tensors["random.cuda"] = torch.cuda.get_rng_state()
    if best_weights:
        tensors["best_weights"] = torch.frombuffer(bytearray(best_weights), dtype=torch.uint8)
    # Tied weights share their memory, which the file format refuses.
    return {"progress": document}, {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}


def _restore(
    progress: dict[str, Any], tensors: dict[str, Tensor], model: nn.Module, optimizer: torch.optim.Optimizer
) -> Progress:
    """Undo `_gather`.

    Raises:
        KeyError, TypeError, RuntimeError: if the state is not one of this model.
    """
    parts: dict[str, dict[str, Tensor]] = {"model": {}, "optimizer": {}}
    for name, tensor in tensors.items():
        part, _, rest = name.partition(".")
        parts.setdefault(part, {})[rest] = tensor
    model.load_state_dict(parts["model"])
    parameters = dict(model.named_parameters())
    for name, tensor in parts["optimizer"].items():
        of, _, slot = name.rpartition(".")
        # A copy of its own is aligned as a fresh tensor is.
        optimizer.state[parameters[of]][slot] = tensor.to(parameters[of].device, copy=True)
    if "cuda" in parts["random"]:
        torch.cuda.set_rng_state(parts["random"]["cuda"])
    torch.set_rng_state(parts["random"]["cpu"])
    best_weights = tensors["best_weights"].numpy().tobytes() if "best_weights" in tensors else b""
    return Progress(**progress, best_weights=best_weights)


def _pack(document: dict[str, Any], tensors: dict[str, Tensor]) -> bytes:
    text = canonical_json(document)
    data: bytes = save(tensors, {"state": text, "sha256": _digest(text, tensors)})
    return data


def _unpack(data: bytes) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Undo `_pack`.

    Raises:
        ValueError: says what is wrong with the bytes.
    """
    try:
        tensors = load(data)
    except SafetensorError as error:
        raise ValueError(str(error)) from None
    # The header is JSON, its length stands before it; that it is sound was checked above.
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    metadata = header.get("__metadata__", {})
    if metadata.keys() != {"state", "sha256"}:
        raise ValueError("it is not a state of Ferry's")
    if metadata["sha256"] != _digest(metadata["state"], tensors):
        raise ValueError("its SHA-256 is not the one that was written")
    try:
        document = json.loads(metadata["state"])
    except RecursionError:
        raise ValueError("its position is nested too deeply") from None
    if not _is_document(document):
        raise ValueError("it does not say where the training stands")
    return document, tensors


def _is_document(document: Any) -> bool:
    """Whether a state's document has the parts, of the types, that `save` writes."""
    if not isinstance(document, dict) or document.keys() != {"progress", "identity", "seconds"}:
        return False
    progress, identity, seconds = document["progress"], document["identity"], document["seconds"]
    if not isinstance(progress, dict) or not isinstance(identity, dict) or type(seconds) not in (int, float):
        return False
    counts = ("step", "epoch", "batch", "best_epoch")
    return (
        progress.keys() == {*counts, "best"}
        and all(type(progress[name]) is int for name in counts)
        and isinstance(progress["best"], dict)
        and all(type(value) in (int, float) for value in progress["best"].values())
    )


def _digest(text: str, tensors: dict[str, Tensor]) -> str:
    """Hash all that a state says; the file can't hold the hash of its own bytes."""
    digest = hashlib.sha256(text.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"\n{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
