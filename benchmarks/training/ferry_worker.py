"""Ferry's side: `pipeline.training.fit` as it is, one epoch over the rows of a job. Run by Ferry's interpreter."""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.training.job import Rows, Settings, read_job
from benchmarks.training.metronome import Line, Metronome
from export import __version__
from export.model import build_model
from pipeline.checkpoint import Checkpoint
from pipeline.config import PRECISIONS, ModelConfig, TrainingConfig
from pipeline.data.examples import Examples
from pipeline.evaluation import run_batches
from pipeline.tasks.text_classification import TextClassification
from pipeline.training import fit


class HeardTask(TextClassification):
    """The task of classifying texts, whose losses are heard."""

    metronome: Metronome

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        loss = super().loss(logits, targets)
        self.metronome.hear(loss.item())
        return loss


def run(folder: Path, precision: str, line: Line) -> None:
    """Train as the job says, segment by segment, and tell the result at last."""
    settings, train, held_out = read_job(folder)
    torch.set_num_threads(settings.threads)
    torch.manual_seed(settings.seed)
    model = build_model(describe(settings))
    task = HeardTask(labels=_labels(settings), label_smoothing=0.0, class_weights=None)
    task.metronome = Metronome(model, segment_tokens=settings.segment_tokens, wait=line.wait, tell=line.tell)
    result: dict[str, Any] = {}

    def validate(model: nn.Module) -> dict[str, float]:
        task.metronome.finish()
        result.update(validate_loss(model, _examples(held_out), settings.batch_tokens))
        return {"accuracy": result["accuracy"]}

    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        fit(
            model,
            task,
            _examples(train),
            validate,
            training_config(settings, precision),
            weights_file=work / "model.safetensors",
            log_folder=work / "log",
            checkpoint=Checkpoint(work / "checkpoint", identity={}, every=10**9, command=""),
            show=False,
        )
    line.wait()
    parameters = sum(parameter.numel() for parameter in model.parameters())
    versions = {"ferry": __version__, "torch": torch.__version__}
    line.tell({"validation": result, "parameters": parameters, "versions": versions})


def describe(settings: Settings) -> dict[str, Any]:
    """Build config.json of what is nearest to BERT among our models: post-norm, the first token, a two-layer head."""
    model = ModelConfig(
        max_len=settings.max_len,
        dim=settings.dim,
        num_layers=settings.num_layers,
        num_heads=settings.num_heads,
        hidden_dim=settings.hidden_dim,
        dropout=settings.dropout,
        norm="post",
        pooling="first",
        head="mlp",
    )
    return TextClassification.describe(model, vocab_size=settings.vocab_size, labels=_labels(settings))


def training_config(settings: Settings, precision: str) -> TrainingConfig:
    return TrainingConfig(
        seed=settings.seed,
        threads=settings.threads,
        precision=precision,
        epochs=1,
        batch_tokens=settings.batch_tokens,
        learning_rate=settings.learning_rate,
        weight_decay=settings.weight_decay,
        schedule="cosine",
        warmup_steps=settings.warmup_steps,
        label_smoothing=0.0,
        clip_norm=settings.clip_norm,
    )


def validate_loss(model: nn.Module, examples: Examples, batch_tokens: int) -> dict[str, float]:
    """Return the mean cross-entropy over rows, in nats, and the accuracy."""
    losses, hits = [], 0
    for _, logits, targets in run_batches(model, examples, batch_tokens=batch_tokens):
        own = nn.functional.cross_entropy(torch.from_numpy(logits), torch.from_numpy(targets), reduction="none")
        losses.append(own.numpy())
        hits += int((logits.argmax(axis=1) == targets).sum())
    return {"loss": float(np.concatenate(losses).mean()), "accuracy": hits / len(examples)}


def _labels(settings: Settings) -> list[str]:
    return [str(label) for label in range(settings.num_labels)]


def _examples(rows: Rows) -> Examples:
    return Examples(ids=rows.ids, starts=rows.starts, targets=rows.targets, per_token=False, truncated=0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--precision", choices=PRECISIONS, required=True)
    arguments = parser.parse_args()
    run(arguments.folder, arguments.precision, Line())
