"""The training loop: AdamW, a schedule, clipping, a guard against numbers that are none, the best weights kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from tqdm import tqdm

from export.errors import FerryError
from export.model import serialise_weights
from export.tokenizer import Encoding, pad_batch
from pipeline.config import TrainingConfig
from pipeline.data.batching import cut_batches, length_buckets
from pipeline.monitor import Monitor
from pipeline.schedules import SCHEDULES
from pipeline.tasks.text_classification import TextClassification


class DivergedError(FerryError):
    """A loss, weight or gradient became infinite or not a number."""


@dataclass(frozen=True)
class Examples:
    """A split that the model can read: token ids, and one target a row."""

    encodings: list[Encoding]
    targets: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        assert len(self.encodings) == len(self.targets)

    @property
    def lengths(self) -> list[int]:
        return [len(encoding.ids) for encoding in self.encodings]

    def batch(self, rows: Sequence[int], device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
        """Return input_ids (B, T), attention_mask (B, T) and targets (B,) of some rows, all int64."""
        input_ids, attention_mask = pad_batch([self.encodings[row] for row in rows])
        tensors = (input_ids, attention_mask, self.targets[list(rows)])
        return tuple(torch.from_numpy(tensor).to(device) for tensor in tensors)  # type: ignore[return-value]


@dataclass(frozen=True)
class Fitted:
    """The best epoch of a training: its weights lie in the checkpoint file."""

    best_epoch: int
    epochs: int
    steps: int
    validation: dict[str, float]


def fit(
    model: nn.Module,
    task: TextClassification,
    train: Examples,
    validation: Examples,
    config: TrainingConfig,
    *,
    weights_file: Path,
    log_folder: Path,
    show: bool = True,
) -> Fitted:
    """Train a model and leave the weights of its best epoch in `weights_file`.

    Afterwards the model holds the weights of the last epoch, not of the best.

    Raises:
        DivergedError: names the first parameter that is not finite.
        ValueError: if a text is longer than a batch may be.
    """
    device = torch.device(config.device)
    model.to(device)
    optimizer = torch.optim.AdamW(
        parameter_groups(model, config.weight_decay), lr=config.learning_rate, betas=(0.9, 0.98), fused=True
    )
    plans = [
        length_buckets(train.lengths, batch_tokens=config.batch_tokens, seed=config.seed, epoch=epoch)
        for epoch in range(config.epochs)
    ]
    total = sum(len(plan) for plan in plans)
    schedule = SCHEDULES[config.schedule]
    step = 0
    best_epoch = -1
    best: dict[str, float] = {}
    with Monitor(log_folder, steps_per_epoch=len(plans[0]), threads=config.threads, show=show) as monitor:
        for epoch, plan in enumerate(plans):
            monitor.start_epoch(epoch)
            model.train()
            for rows in plan:
                learning_rate = config.learning_rate * schedule(step, config.warmup_steps, total)
                for group in optimizer.param_groups:
                    group["lr"] = learning_rate
                input_ids, attention_mask, targets = train.batch(rows, device)
                optimizer.zero_grad()
                loss = task.loss(model(input_ids, attention_mask), targets)
                loss.backward()  # type: ignore[no-untyped-call]
                norm = nn.utils.clip_grad_norm_(model.parameters(), config.clip_norm)
                loss_value, norm_value = loss.item(), norm.item()
                guard(model, step=step, loss=loss_value, norm=norm_value)
                optimizer.step()
                monitor.step(
                    step,
                    loss=loss_value,
                    learning_rate=learning_rate,
                    norm=norm_value,
                    tokens=int(attention_mask.sum()),
                    model=model,
                )
                step += 1
            metrics = task.score(predict(model, validation, batch_tokens=config.batch_tokens), validation.targets)
            better = not best or metrics[task.best_metric] > best[task.best_metric]
            if better:
                best_epoch, best = epoch, metrics
                weights_file.write_bytes(serialise_weights(model))
            monitor.validated(step, metrics, note=", the best so far" if better else "")
            if epoch - best_epoch >= config.patience:
                break
    return Fitted(best_epoch=best_epoch, epochs=epoch + 1, steps=step, validation=best)


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


def predict(
    model: nn.Module, examples: Examples, *, batch_tokens: int, progress: str | None = None
) -> npt.NDArray[np.float32]:
    """Run a model over a split in eval mode and return its logits, (N, labels) float32, in the split's order."""
    device = next(model.parameters()).device
    lengths = examples.lengths
    rows = sorted(range(len(lengths)), key=lengths.__getitem__)
    batches = cut_batches(rows, lengths, batch_tokens=batch_tokens)
    was_training = model.training
    model.eval()
    with torch.inference_mode():
        parts = []
        for batch in tqdm(batches, desc=progress, unit="batch", leave=False, disable=None if progress else True):
            input_ids, attention_mask, _ = examples.batch(batch, device)
            parts.append(model(input_ids, attention_mask).float().cpu().numpy())
    model.train(was_training)
    logits = np.concatenate(parts)
    ordered = np.empty_like(logits)
    ordered[[row for batch in batches for row in batch]] = logits
    return ordered
