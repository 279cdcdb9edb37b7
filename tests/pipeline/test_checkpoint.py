"""A training that ends anywhere goes on bit for bit; what can't go on is refused, and nothing is lost."""

import errno
import json
import os
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save, save_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import pipeline.checkpoint
from export.files import sha256_bytes
from models.config import EncoderConfig
from models.heads import TextClassifier
from pipeline.checkpoint import Checkpoint, CheckpointError, training_identity
from pipeline.config import RunConfig, TrainingConfig
from pipeline.data.dataset import Split
from pipeline.data.examples import Examples
from pipeline.evaluation import predict
from pipeline.tasks import TASKS
from pipeline.training import fit

ENCODER = EncoderConfig(vocab_size=20, max_len=12, dim=16, num_layers=1, num_heads=2, hidden_dim=32, dropout=0.1)
# 11 steps an epoch.
CONFIG = TrainingConfig(
    epochs=3, batch_tokens=64, warmup_steps=4, learning_rate=3e-3, threads=1, patience=3, checkpoint_steps=5
)
IDENTITY = {"training.seed": 0, "the data's SHA-256": "abc"}
COMMAND = "ferry train --config c.toml --run run"


class CrashError(Exception):
    """Stands for a process that ends."""


class CrashingTask(TASKS["text-classification"]):
    """A task whose n-th loss or n-th validation ends the training."""

    def __init__(self, *, loss=0, validation=0):
        super().__init__(labels=["no", "yes"], label_smoothing=0.1, class_weights=None)
        self.countdown = {"loss": loss, "validation": validation}

    def _count(self, what):
        self.countdown[what] -= 1
        if self.countdown[what] == 0:
            raise CrashError

    def loss(self, logits, targets):
        self._count("loss")
        return super().loss(logits, targets)

    def score(self, predicted, split, examples):
        self._count("validation")
        return super().score(predicted, split, examples)


def made_examples(rows, seed):
    """Texts whose label is whether token 7 is among their tokens."""
    generator = np.random.default_rng(seed)
    targets = generator.integers(0, 2, rows)
    rows = [[*generator.integers(8, 20, generator.integers(3, 11)).tolist(), 7 + target] for target in targets]
    starts = np.cumsum([0, *map(len, rows)])
    return Examples(
        ids=np.concatenate(rows).astype(np.int32), starts=starts, targets=targets, per_token=False, truncated=0
    )


def made_checkpoint(folder, *, identity=IDENTITY, unfinished="resume", every=CONFIG.checkpoint_steps):
    return Checkpoint(folder / "checkpoint", identity=identity, every=every, command=COMMAND, unfinished=unfinished)


def train(folder, *, config=CONFIG, checkpoint=None, **crash):
    """Train, or go on with training, in a folder; return what `fit` does, and the bytes of the weights."""
    checkpoint = checkpoint or made_checkpoint(folder)
    torch.manual_seed(0)
    model = TextClassifier(ENCODER, pooling="mean_max", num_labels=2)
    checkpoint.find()
    task = CrashingTask(**crash)
    held_out = made_examples(40, 1)

    def validate(model):
        given = predict(model, held_out, batch_tokens=config.batch_tokens)
        return task.score(given, Split([""] * len(held_out), held_out.targets), held_out)

    fitted = fit(
        model,
        task,
        made_examples(80, 0),
        validate,
        config,
        weights_file=folder / "model.safetensors",
        log_folder=checkpoint.events_folder,
        checkpoint=checkpoint,
        show=False,
    )
    return fitted, (folder / "model.safetensors").read_bytes()


@pytest.fixture(scope="session")
def unbroken(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unbroken")
    return folder, *train(folder)


@pytest.fixture(scope="session")
def state_of_step_5(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("interrupted")
    with pytest.raises(CrashError):
        train(folder, loss=8)
    return folder


@pytest.fixture
def interrupted(tmp_path, state_of_step_5) -> Path:
    """A folder with a training that ended after step 7 and has the state of step 5."""
    return Path(shutil.copytree(state_of_step_5, tmp_path, dirs_exist_ok=True))


def log(folder):
    return (folder / "checkpoint" / "log.txt").read_text().splitlines()


@pytest.mark.parametrize(
    ("crash", "step"),
    [
        ({"loss": 1}, None),
        ({"loss": 5}, None),
        ({"loss": 6}, 5),
        ({"loss": 11}, 10),
        ({"validation": 1}, 10),
        ({"loss": 12}, 11),
        ({"loss": 29}, 25),
        ({"validation": 3}, 30),
    ],
    ids=str,
)
def test_goes_on_bit_for_bit(tmp_path, unbroken, crash, step):
    with pytest.raises(CrashError):
        train(tmp_path, **crash)
    assert not (tmp_path / "model.safetensors").exists()
    assert train(tmp_path) == unbroken[1:]
    assert (f"resumed at step {step}" if step else "started") in log(tmp_path)


def test_goes_on_between_an_epoch_and_its_validation(tmp_path, unbroken):
    with pytest.raises(CrashError):
        train(tmp_path, checkpoint=made_checkpoint(tmp_path, every=11), validation=1)
    assert train(tmp_path) == unbroken[1:]
    assert "resumed at step 11" in log(tmp_path)


def test_goes_on_however_often_it_ends(tmp_path, unbroken):
    for _ in range(5):
        with pytest.raises(CrashError):
            train(tmp_path, loss=7)
    assert train(tmp_path) == unbroken[1:]


def test_how_often_the_state_is_written_changes_nothing(tmp_path, unbroken):
    assert train(tmp_path, checkpoint=made_checkpoint(tmp_path, every=1)) == unbroken[1:]


def test_finished_loop_only_hands_its_weights_out(tmp_path, unbroken):
    train(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    assert train(tmp_path, loss=1, validation=1) == unbroken[1:]


def test_patience_goes_on_too(tmp_path):
    config = TrainingConfig(epochs=30, patience=2, batch_tokens=64, warmup_steps=0, learning_rate=3e-2, threads=1)
    (tmp_path / "unbroken").mkdir()
    wanted = train(tmp_path / "unbroken", config=config)
    assert wanted[0].epochs == wanted[0].best_epoch + 1 + 2 < 30
    for _ in range(wanted[0].epochs - 1):
        with pytest.raises(CrashError):
            train(tmp_path, config=config, validation=2)
    assert train(tmp_path, config=config) == wanted


def test_loop_draws_no_random_numbers_but_torchs(tmp_path):
    random.seed(0)
    np.random.seed(0)
    before = random.getstate(), np.random.get_state()[1].tolist()
    train(tmp_path)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before


def test_curves_have_neither_gap_nor_double(tmp_path, unbroken):
    def curves(folder):
        events = EventAccumulator(str(folder / "checkpoint" / "tensorboard"))
        events.Reload()
        return {
            tag: [(event.step, event.value) for event in events.Scalars(tag)]
            for tag in events.Tags()["scalars"]
            if not tag.startswith("speed/")
        }

    with pytest.raises(CrashError):
        train(tmp_path, loss=14)
    with pytest.raises(CrashError):
        # Twenty steps after step 11: what is recorded of the next step, and lost with it, is recorded again.
        train(tmp_path, loss=21)
    train(tmp_path)
    assert curves(tmp_path) == curves(unbroken[0])
    assert [step for step, _ in curves(tmp_path)["validation/accuracy"]] == [10, 21, 32]


def test_nothing_is_written_before_training_begins(tmp_path):
    made_checkpoint(tmp_path).find()
    assert list(tmp_path.iterdir()) == []


def test_unfinished_training_is_not_overwritten_unasked(interrupted):
    before = (interrupted / "checkpoint" / "state.safetensors").read_bytes()
    with pytest.raises(ValueError, match="interrupted at step 5") as caught:
        made_checkpoint(interrupted, unfinished="refuse").find()
    assert str(caught.value) == (
        f"{interrupted}/checkpoint holds a training that was interrupted at step 5. "
        f"Go on with `{COMMAND} --resume`, or discard it with `{COMMAND} --restart`."
    )
    assert (interrupted / "checkpoint" / "state.safetensors").read_bytes() == before


def test_restart_discards(interrupted, unbroken):
    assert train(interrupted, checkpoint=made_checkpoint(interrupted, unfinished="restart")) == unbroken[1:]
    assert log(interrupted)[0] == "started"
    assert not any(line.startswith("resumed") for line in log(interrupted))


def test_other_training_is_refused_by_what_differs(interrupted):
    before = (interrupted / "checkpoint" / "state.safetensors").read_bytes()
    other = {"training.seed": 1, "the data's SHA-256": "abc", "new": [1]}
    with pytest.raises(ValueError, match="can't go on") as caught:
        made_checkpoint(interrupted, identity=other).find()
    assert str(caught.value).splitlines()[1:] == [
        "  training.seed was 0 and is 1.",
        "  new was null and is [1].",
        f"Put that back and go on with `{COMMAND} --resume`, or discard it with `{COMMAND} --restart`.",
    ]
    assert (interrupted / "checkpoint" / "state.safetensors").read_bytes() == before


def test_identity_names_all_that_weights_depend_on():
    def identity(**training):
        config = RunConfig(name="x", training=TrainingConfig(**training))
        return training_identity(config, data_sha256="abc")

    base = identity()
    assert identity(checkpoint_steps=7) == base
    assert identity(threads=1) != base
    assert {"the data's SHA-256", "Ferry's version", "torch's version", "the CPU's capability"} <= base.keys()
    assert base["package.golden_texts"] == []
    assert json.loads(json.dumps(base)) == base


def flip(data, position):
    return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:7],
        lambda data: data[: len(data) // 2],
        lambda data: data[:-1],
        lambda data: data + b"\0",
        lambda data: flip(data, 0),
        lambda data: flip(data, data.index(b'\\"step\\":5') + 9),
        lambda data: flip(data, len(data) // 2),
        lambda data: flip(data, len(data) - 1),
        lambda data: b"\xff" * len(data),
    ],
    ids=["empty", "head", "half", "less", "more", "length", "step", "middle", "last", "noise"],
)
@pytest.mark.parametrize("unfinished", ["refuse", "resume"])
def test_damaged_state_is_a_sentence(interrupted, damage, unfinished):
    file = interrupted / "checkpoint" / "state.safetensors"
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(CheckpointError, match=r"state\.safetensors is damaged: ") as caught:
        made_checkpoint(interrupted, unfinished=unfinished).find()
    assert str(caught.value).endswith(f" Discard it with `{COMMAND} --restart`.")


PROGRESS = {"step": 5, "epoch": 0, "batch": 5, "best_epoch": -1, "best": {}}


@pytest.mark.parametrize(
    "document",
    [
        {},
        [],
        {"progress": PROGRESS, "identity": IDENTITY},
        {"progress": PROGRESS, "identity": [], "seconds": 1},
        {"progress": PROGRESS, "identity": IDENTITY, "seconds": "1"},
        {"progress": {}, "identity": IDENTITY, "seconds": 1},
        {"progress": {**PROGRESS, "step": "5"}, "identity": IDENTITY, "seconds": 1},
        {"progress": {**PROGRESS, "best": {"accuracy": None}}, "identity": IDENTITY, "seconds": 1},
    ],
)
@pytest.mark.parametrize("unfinished", ["refuse", "resume"])
def test_state_with_a_right_hash_that_lacks_parts_is_damaged(interrupted, document, unfinished):
    text = json.dumps(document)
    file = interrupted / "checkpoint" / "state.safetensors"
    file.write_bytes(save({}, {"state": text, "sha256": sha256_bytes(text.encode())}))
    with pytest.raises(CheckpointError) as caught:
        made_checkpoint(interrupted, unfinished=unfinished).find()
    assert str(caught.value).endswith(
        "state.safetensors is damaged: it does not say where the training stands. "
        f"Discard it with `{COMMAND} --restart`."
    )


@pytest.mark.parametrize("text", ["{", "[" * 200_000], ids=["cut", "deep"])
def test_state_that_is_no_json_is_damaged(interrupted, text):
    file = interrupted / "checkpoint" / "state.safetensors"
    file.write_bytes(save({}, {"state": text, "sha256": sha256_bytes(text.encode())}))
    with pytest.raises(CheckpointError, match=r"state\.safetensors is damaged: "):
        made_checkpoint(interrupted).find()


def test_file_of_another_kind_is_a_sentence(interrupted):
    file = interrupted / "checkpoint" / "state.safetensors"
    save_file({"a": torch.zeros(1)}, file)
    with pytest.raises(CheckpointError, match="it is not a state of Ferry's"):
        made_checkpoint(interrupted).find()
    file.unlink()
    file.mkdir()
    with pytest.raises(CheckpointError, match=r"can't be read: Is a directory"):
        made_checkpoint(interrupted).find()


def test_state_of_another_model_is_a_sentence(interrupted):
    checkpoint = made_checkpoint(interrupted)
    checkpoint.find()
    model = torch.nn.Linear(2, 2)
    with pytest.raises(CheckpointError, match="it does not fit this model"):
        checkpoint.begin(model, torch.optim.AdamW(model.parameters()))
    assert (interrupted / "checkpoint" / "state.safetensors").exists()


def test_damaged_state_can_be_discarded(interrupted, unbroken):
    (interrupted / "checkpoint" / "state.safetensors").write_bytes(b"")
    assert train(interrupted, checkpoint=made_checkpoint(interrupted, unfinished="restart")) == unbroken[1:]


@pytest.mark.parametrize(
    ("module", "name", "number"),
    [
        (pipeline.checkpoint, "_write", errno.ENOSPC),
        (pipeline.checkpoint, "_write", errno.EIO),
        (os, "fsync", errno.EDQUOT),
        (os, "replace", errno.EFBIG),
    ],
    ids=["write", "write-broken", "fsync", "replace"],
)
def test_full_disk_leaves_the_state_before(interrupted, unbroken, monkeypatch, module, name, number):
    before = (interrupted / "checkpoint" / "state.safetensors").read_bytes()
    original = getattr(module, name)

    def full(*args):
        if log(interrupted)[-1] == "writing step 10":
            raise OSError(number, os.strerror(number))
        return original(*args)

    with monkeypatch.context() as patch:
        patch.setattr(module, name, full)
        with pytest.raises(CheckpointError) as caught:
            train(interrupted)
    assert str(caught.value) == (
        f"the state of step 10 can't be written to {interrupted}: {os.strerror(number)}. "
        f"The state of step 5 is whole: mend that, then go on with `{COMMAND} --resume`."
    )
    assert (interrupted / "checkpoint" / "state.safetensors").read_bytes() == before
    assert not (interrupted / "checkpoint" / "state.safetensors.partial").exists()
    assert train(interrupted) == unbroken[1:]


def test_folder_that_can_not_be_written_is_found_before_training(tmp_path, monkeypatch):
    def refuse(path, data):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(pipeline.checkpoint, "_write", refuse)
    with pytest.raises(CheckpointError) as caught:
        train(tmp_path, loss=1)
    assert str(caught.value) == (
        f"the state of the training can't be written to {tmp_path}: Read-only file system. "
        f"No earlier state is there: mend that, then go on with `{COMMAND}`."
    )


def test_leftovers_of_a_killed_write_are_swept(interrupted, unbroken):
    (interrupted / "checkpoint" / "state.safetensors.partial").write_bytes(b"half")
    with pytest.raises(CrashError):
        train(interrupted, loss=1)
    assert not (interrupted / "checkpoint" / "state.safetensors.partial").exists()
    assert train(interrupted) == unbroken[1:]


@pytest.mark.parametrize("unfinished", ["refuse", "resume", "restart"])
def test_folder_of_somebody_else_is_left(tmp_path, unfinished):
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "precious").write_text("kept")
    with pytest.raises(CheckpointError, match="was not written by Ferry and is never replaced"):
        made_checkpoint(tmp_path, unfinished=unfinished).find()
    assert (tmp_path / "checkpoint" / "precious").read_text() == "kept"


def test_what_a_finished_training_left_goes_and_another_stays(interrupted):
    made_checkpoint(interrupted, identity={**IDENTITY, "training.seed": 1}).remove_finished()
    assert (interrupted / "checkpoint" / "state.safetensors").exists()
    made_checkpoint(interrupted).remove_finished()
    assert not (interrupted / "checkpoint").exists()
    made_checkpoint(interrupted).remove_finished()
