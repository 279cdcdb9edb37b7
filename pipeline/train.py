"""Stage 1, train: a configuration and a data set become weights, a tokenizer and config.json in RUN/train."""

import random
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # Run as a file, imports would start in this folder, where `export` is another module.
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    from pipeline.cli import main

    main(["train", *sys.argv[1:]])

import click
import numpy as np
import torch

from export import __version__
from export.contract import TOKENIZER_CONFIG_FILE, TOKENIZER_FILE, TOKENIZER_JSON_FILE, canonical_json
from export.files import dump_json, new_folder, read_json, sha256_bytes, sha256_file
from export.model import CONFIG_FILE, WEIGHTS_FILE, build_model, restore_model
from export.tokenizer import (
    Tokenizer,
    huggingface_tokenizer,
    huggingface_tokenizer_config,
    train_tokenizer,
)
from pipeline.config import RunConfig, load_config
from pipeline.data.dataset import SPLITS, Dataset, Split, load_dataset
from pipeline.run import TRAIN_FOLDER, TRAIN_RECORD, is_current
from pipeline.tasks import TASKS
from pipeline.training import Examples, fit, predict

TASK = TASKS["text-classification"]


@dataclass(frozen=True)
class Trained:
    """The result of the stage; `skipped` if the folder already held it."""

    folder: Path
    skipped: bool


def train(config_file: Path, run: Path, *, show: bool = True) -> Trained:
    """Train what the configuration describes, unless RUN/train already holds just that.

    Raises:
        ValueError: if the configuration or the data is wrong.
        DivergedError: if a number became infinite or not a number.
    """
    config = load_config(config_file)
    folder = run / TRAIN_FOLDER
    dataset = load_dataset(config.data.name)
    inputs = {
        "config": sha256_bytes(canonical_json(config.to_dict()).encode()),
        "data": dataset.sha256,
        "ferry": __version__,
    }
    if is_current(folder / TRAIN_RECORD, inputs):
        return Trained(folder, skipped=True)
    if config.training.device == "cuda" and not torch.cuda.is_available():
        raise ValueError('training.device is "cuda", but torch finds no CUDA device here. Set it to "cpu".')
    with new_folder(folder, replace=True, record=TRAIN_RECORD) as work:
        record = _train_into(work, config, dataset, show=show)
        files = [CONFIG_FILE, WEIGHTS_FILE, TOKENIZER_FILE, TOKENIZER_JSON_FILE, TOKENIZER_CONFIG_FILE]
        record["files"] = {name: sha256_file(work / name) for name in files}
        record["inputs"] = inputs
        (work / TRAIN_RECORD).write_text(dump_json(record))
    return Trained(folder, skipped=False)


def _train_into(work: Path, config: RunConfig, dataset: Dataset, *, show: bool) -> dict[str, Any]:
    started = time.perf_counter()
    training = config.training
    _seed_everything(training.seed, training.threads)
    tokenizer_model = train_tokenizer(dataset.train.texts, vocab_size=config.tokenizer.vocab_size)
    tokenizer = Tokenizer(tokenizer_model, max_length=config.model.max_len)
    description = TASK.describe(config.model, vocab_size=tokenizer.vocab_size, labels=dataset.labels)
    model = build_model(description)
    (work / TOKENIZER_FILE).write_bytes(tokenizer_model)
    (work / TOKENIZER_JSON_FILE).write_text(huggingface_tokenizer(tokenizer_model, max_length=config.model.max_len))
    (work / TOKENIZER_CONFIG_FILE).write_text(dump_json(huggingface_tokenizer_config(max_length=config.model.max_len)))
    (work / CONFIG_FILE).write_text(dump_json(description))

    splits = {name: _encode(tokenizer, getattr(dataset, name)) for name in SPLITS}
    task = TASK(label_smoothing=training.label_smoothing)
    fitted = fit(
        model,
        task,
        splits["train"],
        splits["validation"],
        training,
        weights_file=work / WEIGHTS_FILE,
        log_folder=work / "tensorboard",
        show=show,
    )
    best = restore_model(description, (work / WEIGHTS_FILE).read_bytes())
    logits = predict(best, splits["test"], batch_tokens=training.batch_tokens, progress="test split" if show else None)
    test = task.score(logits, splits["test"].targets)
    return {
        "name": config.name,
        "config": config.to_dict(),
        "data": {
            "name": dataset.name,
            "sha256": dataset.sha256,
            "licence": dataset.licence,
            "attribution": dataset.attribution,
            "origin": dataset.origin,
            "rows": {name: len(examples.targets) for name, examples in splits.items()},
            "truncated_rows": {
                name: sum(encoding.dropped > 0 for encoding in examples.encodings) for name, examples in splits.items()
            },
        },
        "metrics": {"validation": fitted.validation, "test": {**test, "rows": len(dataset.test.texts)}},
        "golden_texts": list(config.package.golden_texts),
        "training": {
            "best_epoch": fitted.best_epoch + 1,
            "epochs": fitted.epochs,
            "steps": fitted.steps,
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "threads": training.threads,
            "seconds": round(time.perf_counter() - started, 1),
        },
    }


def _seed_everything(seed: int, threads: int) -> None:
    """Fix what weights depend on: the seed, and the number of threads, which orders floating-point sums."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.set_num_threads(threads)


def _encode(tokenizer: Tokenizer, split: Split) -> Examples:
    return Examples(tokenizer.encode_batch(split.texts), np.asarray(split.labels, dtype=np.int64))


def run_stage(config_file: Path, run: Path) -> None:
    """Run the stage and tell a person what came of it."""
    trained = train(config_file, run)
    if trained.skipped:
        click.echo(f"train: {trained.folder} is current")
        return
    record = read_json(trained.folder / TRAIN_RECORD)
    test = record["metrics"]["test"]
    click.echo(
        f"train: {trained.folder} holds epoch {record['training']['best_epoch']} of {record['training']['epochs']}, "
        f"{record['training']['parameters']:,} parameters, {record['training']['seconds']:.0f} s; "
        f"test accuracy {100 * test['accuracy']:.2f} %, macro-F1 {100 * test['macro_f1']:.2f} %"
    )
