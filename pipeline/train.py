"""Stage 1, train: a configuration and a data set become weights, a tokenizer and config.json in RUN/train."""

import dataclasses
import random
import shlex
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

if __name__ == "__main__":
    # Run as a file, imports would start in this folder, where `export` is another module.
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    from pipeline.cli import main

    main(["train", *sys.argv[1:]])

import click
import numpy as np
import numpy.typing as npt
import torch

from export import __version__
from export.artifact.card import FIGURES
from export.contract import NO_ANSWER, TOKENIZER_CONFIG_FILE, TOKENIZER_FILE, TOKENIZER_JSON_FILE, canonical_json
from export.files import DISK_FULL, dump_json, new_folder, read_json, scratch_of, sha256_bytes, sha256_file
from export.model import CONFIG_FILE, WEIGHTS_FILE, build_model, restore_model
from export.precision_files import CALIBRATION_FILE, calibration_rows, write_calibration
from export.tokenizer import (
    Tokenizer,
    huggingface_tokenizer,
    huggingface_tokenizer_config,
    train_tokenizer,
)
from pipeline.assess import assess
from pipeline.checkpoint import EVENTS_FOLDER, Checkpoint, Unfinished, training_identity
from pipeline.class_weights import CLASS_WEIGHTS
from pipeline.config import DEFAULT_CONFIG, OWN_CONFIGS, DataConfig, RunConfig, load_config, own_name, replace_checked
from pipeline.data.dataset import SPLITS, Dataset
from pipeline.data.examples import Examples
from pipeline.data.own import open_data
from pipeline.data.test_split import TEST_SPLIT_FILE, write_test_split
from pipeline.evaluation import predict
from pipeline.run import CHECKPOINT_FOLDER, STAGE_FILES, TRAIN_FOLDER, TRAIN_RECORD, exclusive, is_current
from pipeline.tasks import TASKS
from pipeline.training import DivergedError, fit

NOTHING: Mapping[str, Any] = MappingProxyType({})


# What a person hears of the test split, where the task has it.
_TOLD = {**FIGURES, "answered": "answered", "none_rejected": "none of these rejected"}

# A vocabulary of some thousand pieces is settled by far fewer; more would only fill the memory.
_TOKENIZER_TEXTS = 200_000


@dataclass(frozen=True)
class Trained:
    """The result of the stage; `skipped` if the folder already held it."""

    folder: Path
    skipped: bool


def train(
    config_file: Path | None,
    run: Path,
    *,
    data: Mapping[str, Any] = NOTHING,
    name: str | None = None,
    unfinished: Unfinished = "refuse",
    show: bool = True,
) -> Trained:
    """Train what the configuration describes, unless RUN/train already holds just that.

    Args:
        config_file: the configuration; None takes the default one, for own data the one of its task.
        run: the run folder.
        data: fields of `DataConfig` that take the place of the configuration's.
        name: the artifact's name, instead of the configuration's or one that follows from the data's.
        unfinished: what is done with an unfinished training in RUN/checkpoint: "refuse", "resume" or "restart".
        show: whether progress is shown.

    Raises:
        ValueError: if the configuration or the data is wrong, or an unfinished training can't go on as asked.
        DivergedError: if a number became infinite or not a number.
        StoppedError: if a signal has ended the training; its state is in RUN/checkpoint.
        CheckpointError: if a state can't be read, or the disk is full.
        LockedError: if another process works in the run folder.
    """
    config = configure(config_file, data, name)
    with exclusive(run):
        return _train(config, run, _command(config_file, run, data, name), unfinished, show=show)


def _command(config_file: Path | None, run: Path, data: Mapping[str, Any], name: str | None) -> str:
    """Return the command line of this training, for messages that say how to go on."""
    words = ["ferry", "train"]
    if config_file is not None:
        words += ["--config", str(config_file)]
    words += ["--run", str(run)]
    for field, value in data.items():
        option = "--data" if field == "train" else f"--{field.replace('_', '-')}"
        words += [word for own in (value if isinstance(value, tuple) else [value]) for word in (option, str(own))]
    if name is not None:
        words += ["--name", name]
    return shlex.join(words)


def _train(config: RunConfig, run: Path, command: str, unfinished: Unfinished, *, show: bool) -> Trained:
    folder = run / TRAIN_FOLDER
    source = open_data(config.data)
    inputs = {
        "config": sha256_bytes(canonical_json(config.identity()).encode()),
        "data": source.sha256,
        "ferry": __version__,
    }
    checkpoint = Checkpoint(
        run / CHECKPOINT_FOLDER,
        identity=training_identity(config, data_sha256=source.sha256),
        every=config.training.checkpoint_steps,
        command=command,
        unfinished=unfinished,
    )
    if is_current(folder / TRAIN_RECORD, inputs):
        checkpoint.remove_finished()
        return Trained(folder, skipped=True)
    if config.training.device == "cuda" and not torch.cuda.is_available():
        raise ValueError('training.device is "cuda", but torch finds no CUDA device here. Set it to "cpu".')
    checkpoint.find()
    try:
        with new_folder(folder, replace=True, record=TRAIN_RECORD) as work:
            dataset = source.load(scratch_of(work), show=show)
            _tell(dataset, show=show)
            record = _train_into(work, config, dataset, checkpoint, show=show)
            record["files"] = {name: sha256_file(work / name) for name in sorted(STAGE_FILES[TRAIN_RECORD])}
            record["inputs"] = inputs
            (work / TRAIN_RECORD).write_text(dump_json(record))
    except DivergedError:
        # It would diverge again.
        checkpoint.remove()
        raise
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        raise checkpoint.unwritable("the result", error) from error
    checkpoint.remove()
    return Trained(folder, skipped=False)


def _tell(dataset: Dataset, *, show: bool) -> None:
    """Say what a person should know of the data."""
    if show:
        for note in dataset.notes:
            click.echo(f"data: {note}", err=True)


def configure(config_file: Path | None, data: Mapping[str, Any], name: str | None) -> RunConfig:
    """Put the configuration together from its file and what the command line says of data and name.

    Raises:
        ValueError: if the configuration or the data is wrong.
    """
    own = DataConfig(**data)
    if config_file is None:
        config_file = OWN_CONFIGS[open_data(own).task] if own.train else DEFAULT_CONFIG
    config = load_config(config_file)
    if own.train and name is None:
        name = own_name(own)
    if name is not None:
        config = replace_checked(config, name=name)
    told = {"name": config.name, **data} if own.train else data
    return replace_checked(config, data=dataclasses.replace(config.data, **told))


def _train_into(
    work: Path, config: RunConfig, dataset: Dataset, checkpoint: Checkpoint, *, show: bool
) -> dict[str, Any]:
    training = config.training
    _seed_everything(training.seed, training.threads)
    kind = TASKS[dataset.task]
    # Evenly spaced over the rows.
    step = -(-len(dataset.train.inputs) // _TOKENIZER_TEXTS)
    tokenizer = _make_tokenizer(work, config, islice(kind.corpus(dataset.train), 0, None, step))
    examples = {
        split: kind.encode(tokenizer, getattr(dataset, split), progress=f"{split}: tokens" if show else None)
        for split in SPLITS
    }
    weights = CLASS_WEIGHTS[training.class_weights](_label_counts(examples["train"], len(dataset.labels)))
    task = kind(
        labels=dataset.labels,
        label_smoothing=training.label_smoothing,
        class_weights=None if weights is None else torch.from_numpy(weights).to(training.device),
    )
    description = kind.describe(config.model, vocab_size=tokenizer.vocab_size, labels=dataset.labels)
    model = build_model(description)

    def validate(model: torch.nn.Module) -> dict[str, float]:
        given = predict(model, examples["validation"], batch_tokens=training.batch_tokens)
        return task.score(given, dataset.validation, examples["validation"])

    fitted = fit(
        model,
        task,
        examples["train"],
        validate,
        training,
        weights_file=work / WEIGHTS_FILE,
        log_folder=checkpoint.events_folder,
        checkpoint=checkpoint,
        show=show,
    )
    checkpoint.copy_events(work / EVENTS_FOLDER)
    best = restore_model(description, (work / WEIGHTS_FILE).read_bytes())
    assessed = assess(best, task, dataset, examples, config, tokenizer=tokenizer, folder=work, show=show)
    description |= {"temperature": assessed.temperature, "threshold": assessed.threshold}
    (work / CONFIG_FILE).write_text(dump_json(description))
    write_test_split(work / TEST_SPLIT_FILE, dataset.test, per_token=kind.per_token)
    own = examples["train"]
    (work / CALIBRATION_FILE).write_bytes(write_calibration([own.row(row) for row in calibration_rows(len(own))]))
    return {
        "name": config.name,
        "config": config.identity(),
        "data": {
            "name": dataset.name,
            "sha256": dataset.sha256,
            "licence": dataset.licence,
            "attribution": dataset.attribution,
            "origin": dataset.origin,
            "rows": {split: len(own) for split, own in examples.items()},
            "truncated_rows": {split: own.truncated for split, own in examples.items()},
            "notes": list(dataset.notes),
            "bad_rows": [str(row) for row in dataset.bad_rows],
            "rows_read": dataset.rows_read,
        },
        "metrics": assessed.metrics,
        "golden_texts": list(config.package.golden_texts),
        "training": {
            "best_epoch": fitted.best_epoch + 1,
            "epochs": fitted.epochs,
            "steps": fitted.steps,
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "threads": training.threads,
            "seconds": round(checkpoint.seconds, 1),
        },
    }


def _make_tokenizer(work: Path, config: RunConfig, texts: Iterable[str]) -> Tokenizer:
    """Train the tokenizer and write its files."""
    model = train_tokenizer(texts, vocab_size=config.tokenizer.vocab_size)
    max_length = config.model.max_len
    (work / TOKENIZER_FILE).write_bytes(model)
    (work / TOKENIZER_JSON_FILE).write_text(huggingface_tokenizer(model, max_length=max_length))
    (work / TOKENIZER_CONFIG_FILE).write_text(dump_json(huggingface_tokenizer_config(max_length=max_length)))
    return Tokenizer(model, max_length=max_length)


def _label_counts(examples: Examples, num_labels: int) -> npt.NDArray[np.int64]:
    return np.bincount(examples.targets[examples.targets != NO_ANSWER], minlength=num_labels)


def _seed_everything(seed: int, threads: int) -> None:
    """Fix what weights depend on: the seed, and the number of threads, which orders floating-point sums."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.set_num_threads(threads)


def run_stage(
    config_file: Path | None,
    run: Path,
    *,
    data: Mapping[str, Any] = NOTHING,
    name: str | None = None,
    unfinished: Unfinished = "refuse",
) -> None:
    """Run the stage and tell a person what came of it."""
    trained = train(config_file, run, data=data, name=name, unfinished=unfinished)
    if trained.skipped:
        click.echo(f"train: {trained.folder} is current")
        return
    record = read_json(trained.folder / TRAIN_RECORD)
    test = record["metrics"]["test"]
    figures = ", ".join(f"{name} {100 * test[key]:.2f} %" for key, name in _TOLD.items() if key in test)
    click.echo(
        f"train: {trained.folder} holds epoch {record['training']['best_epoch']} of {record['training']['epochs']}, "
        f"{record['training']['parameters']:,} parameters, {record['training']['seconds']:.0f} s; on test: {figures}"
    )
