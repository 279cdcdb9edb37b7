"""The training loop: AdamW, a schedule, clipping, a guard against numbers that are none, the best weights kept."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from export.contract import MASK_ID, RESERVED_IDS
from export.errors import FerryError
from export.model import serialise_weights
from pipeline.checkpoint import Checkpoint
from pipeline.config import TrainingConfig
from pipeline.data.batching import length_buckets
from pipeline.data.examples import Examples
from pipeline.monitor import Monitor
from pipeline.precision import forward_in
from pipeline.schedules import SCHEDULES
from pipeline.tasks import Task


class DivergedError(FerryError):
    """A loss, weight or gradient became infinite or not a number."""


@dataclass(frozen=True)
class Fitted:
    """The best epoch of a training: its weights lie in the weights file."""

    best_epoch: int
    epochs: int
    steps: int
    validation: dict[str, float]


def fit(
    model: nn.Module,
    task: Task,
    train: Examples,
    validate: Callable[[nn.Module], dict[str, float]],
    config: TrainingConfig,
    *,
    weights_file: Path,
    log_folder: Path,
    checkpoint: Checkpoint,
    show: bool = True,
) -> Fitted:
    """Train a model and leave the weights of its best epoch in `weights_file`.

    Goes on where the state in `checkpoint` stands. Afterwards the model holds the weights of the last epoch, not of the
    best. `validate` gives the metrics of the validation split, the task's best metric among them.

    Raises:
        DivergedError: names the first parameter that is not finite.
        StoppedError: if a signal has ended the training; its state is written.
        CheckpointError: if the state can't be written or read.
        ValueError: if a text is longer than a batch may be.
    """
    device = torch.device(config.device)
    model.to(device)
    forward = forward_in(config.precision, model)
    optimizer = make_optimizer(model, config)
    lengths = train.lengths.tolist()

    def plan(epoch: int) -> list[list[int]]:
        return length_buckets(lengths, batch_tokens=config.batch_tokens, seed=config.seed, epoch=epoch)

    # Every epoch cuts the same lengths, so every epoch has as many steps.
    steps_per_epoch = len(plan(0))
    total = config.epochs * steps_per_epoch
    schedule = SCHEDULES[config.schedule]
    now = checkpoint.begin(model, optimizer)
    if now.step and show:
        tqdm.write(f"  going on behind step {now.step} of {total}", file=sys.stderr)
    with (
        Monitor(
            log_folder, steps_per_epoch=steps_per_epoch, threads=config.threads, first_step=now.step, show=show
        ) as monitor,
        checkpoint.interruption,
    ):
        while now.epoch < config.epochs and now.epoch - now.best_epoch <= config.patience:
            monitor.start_epoch(now.epoch, done=now.batch)
            model.train()
            for rows in plan(now.epoch)[now.batch :]:
                learning_rate = config.learning_rate * schedule(now.step, config.warmup_steps, total)
                for group in optimizer.param_groups:
                    group["lr"] = learning_rate
                input_ids, attention_mask, targets = (
                    torch.from_numpy(tensor).to(device) for tensor in train.batch(rows)
                )
                optimizer.zero_grad()
                loss = task.loss(forward(drop_tokens(input_ids, config.token_dropout), attention_mask), targets)
                loss.backward()  # type: ignore[no-untyped-call]
                norm = nn.utils.clip_grad_norm_(model.parameters(), config.clip_norm)
                loss_value, norm_value = loss.item(), norm.item()
                guard(model, step=now.step, loss=loss_value, norm=norm_value)
                optimizer.step()
                monitor.step(
                    now.step,
                    loss=loss_value,
                    learning_rate=learning_rate,
                    norm=norm_value,
                    tokens=int(attention_mask.sum()),
                    model=model,
                )
                now.step += 1
                now.batch += 1
                if checkpoint.is_due(now.step):
                    monitor.flush()
                    checkpoint.save(model, optimizer, now)
            metrics = validate(model)
            better = not now.best or metrics[task.best_metric] > now.best[task.best_metric]
            if better:
                now.best_epoch, now.best, now.best_weights = now.epoch, metrics, serialise_weights(model)
            # The last step that it judges: what TensorBoard shows of later ones goes when the training is resumed.
            monitor.validated(now.step - 1, metrics, note=", the best so far" if better else "")
            now.epoch, now.batch = now.epoch + 1, 0
            monitor.flush()
            checkpoint.save(model, optimizer, now)
    if now.epoch < config.epochs and show:
        tqdm.write(f"  stopped: no better epoch among the last {config.patience} (training.patience)", file=sys.stderr)
    weights_file.write_bytes(now.best_weights)
    return Fitted(best_epoch=now.best_epoch, epochs=now.epoch, steps=now.step, validation=now.best)


def drop_tokens(input_ids: Tensor, share: float) -> Tensor:
    """Replace a random share of the pieces of texts by the reserved mask id; reserved ids stay.

    Source: "Deep Unordered Composition Rivals Syntactic Methods for Text Classification", section 3 (word dropout).

    Args:
        input_ids: (B, T) int64.
        share: 0 … 1; at 0 no random number is drawn.
    """
    if share == 0:
        return input_ids
    dropped = torch.rand(input_ids.shape, device=input_ids.device) < share
    return input_ids.masked_fill(dropped & (input_ids > max(RESERVED_IDS.values())), MASK_ID)


def make_optimizer(model: nn.Module, config: TrainingConfig) -> torch.optim.AdamW:
    """AdamW with its update in one kernel, one pass over a parameter and its moments.

    Source: "Decoupled Weight Decay Regularization", algorithm 2.
    """
    return torch.optim.AdamW(
        parameter_groups(model, config.weight_decay), lr=config.learning_rate, betas=(0.9, 0.98), fused=True
    )


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, object]]:
    """Split parameters: matrices decay, biases and LayerNorm's vectors do not."""
    matrices = [parameter for parameter in model.parameters() if parameter.dim() >= 2]
    vectors = [parameter for parameter in model.parameters() if parameter.dim() < 2]
    return [{"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]


def guard(model: nn.Module, *, step: int, loss: float, norm: float) -> None:
    """Stop a training whose numbers are none.

    Args:
        model: the model with the gradients of this step.
        step: the step, from 0.
        loss: the loss of this step.
        norm: the norm of all gradients before clipping.

    Raises:
        DivergedError: names the first parameter whose value, or else whose gradient, is not finite.
    """
    if np.isfinite(loss) and np.isfinite(norm):
        return
    values = ((f"the value of {name}", parameter) for name, parameter in model.named_parameters())
    gradients = (
        (f"the gradient of {name}", parameter.grad)
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    )
    bad = [name for name, tensor in (*values, *gradients) if not bool(torch.isfinite(tensor).all())]
    culprit = bad[0] if bad else "the loss"
    raise DivergedError(
        f"training diverged at step {step}: {culprit} is not finite (loss {loss}, gradient norm {norm}). "
        "Lower training.learning_rate, or raise training.warmup_steps."
    )
