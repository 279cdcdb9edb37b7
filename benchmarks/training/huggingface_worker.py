"""The peer: BERT for classification under Hugging Face's Trainer, as a careful user sets it up.

Dynamic padding, length grouping where asked, fused AdamW, no dropout of attention's weights (Ferry has none, and it
keeps fused kernels from running). Run by the interpreter of the peer's environment, which has no Ferry; nothing is
downloaded.
"""

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}

import torch
import transformers
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    DataCollatorWithPadding,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from benchmarks.training.job import Rows, Settings, read_job
from benchmarks.training.metronome import Line, Metronome


class Dataset(torch.utils.data.Dataset[dict[str, Any]]):
    """Rows as Trainer takes them: unpadded ids and a label."""

    def __init__(self, rows: Rows) -> None:
        self._rows = [
            {"input_ids": ids.tolist(), "label": int(target)} for ids, target in zip(rows, rows.targets, strict=True)
        ]

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, row: int) -> dict[str, Any]:
        return self._rows[row]


class Finish(TrainerCallback):  # type: ignore[misc]
    """Ends the last segment with the training."""

    def __init__(self, metronome: Metronome) -> None:
        self._metronome = metronome

    def on_train_end(self, *_: Any, **__: Any) -> None:
        self._metronome.finish()


def build(settings: Settings, attention: str) -> Any:
    """Build BERT of the job's sizes with random weights."""
    return AutoModelForSequenceClassification.from_config(
        BertConfig(
            vocab_size=settings.vocab_size,
            hidden_size=settings.dim,
            num_hidden_layers=settings.num_layers,
            num_attention_heads=settings.num_heads,
            intermediate_size=settings.hidden_dim,
            max_position_embeddings=settings.max_len,
            hidden_dropout_prob=settings.dropout,
            attention_probs_dropout_prob=0.0,
            num_labels=settings.num_labels,
        ),
        attn_implementation=attention,
    )


def arguments_of(settings: Settings, output: str, *, sampling: str, precision: str) -> TrainingArguments:
    return TrainingArguments(
        output_dir=output,
        use_cpu=True,
        bf16=precision == "bfloat16",
        num_train_epochs=1,
        per_device_train_batch_size=settings.rows_per_batch,
        per_device_eval_batch_size=settings.rows_per_batch,
        group_by_length=sampling == "group_by_length",
        optim="adamw_torch_fused",
        learning_rate=settings.learning_rate,
        weight_decay=settings.weight_decay,
        adam_beta1=0.9,
        adam_beta2=0.98,
        max_grad_norm=settings.clip_norm,
        lr_scheduler_type="cosine",
        warmup_steps=settings.warmup_steps,
        seed=settings.seed,
        # As often as Ferry writes its scalars.
        logging_steps=10,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
    )


def run(folder: Path, *, sampling: str, precision: str, attention: str, line: Line) -> None:
    """Train as the job says, segment by segment, and tell the result at last."""
    settings, train, held_out = read_job(folder)
    torch.set_num_threads(settings.threads)
    torch.manual_seed(settings.seed)
    model = build(settings, attention)
    metronome = Metronome(model, segment_tokens=settings.segment_tokens, wait=line.wait, tell=line.tell)
    handle = model.register_forward_hook(lambda _, __, output: metronome.hear(output.loss.item()))
    with tempfile.TemporaryDirectory() as output:
        trainer = Trainer(
            model=model,
            args=arguments_of(settings, output, sampling=sampling, precision=precision),
            train_dataset=Dataset(train),
            eval_dataset=Dataset(held_out),
            data_collator=DataCollatorWithPadding(AutoTokenizer.from_pretrained(str(folder))),
            compute_metrics=lambda given: {
                "accuracy": float((given.predictions.argmax(axis=1) == given.label_ids).mean())
            },
            callbacks=[Finish(metronome)],
        )
        trainer.train()
        handle.remove()
        line.wait()
        metrics = trainer.evaluate()
    line.tell(
        {
            "validation": {"loss": metrics["eval_loss"], "accuracy": metrics["eval_accuracy"]},
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "versions": {"transformers": transformers.__version__, "torch": torch.__version__},
        }
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sampling", choices=("random", "group_by_length"), required=True)
    parser.add_argument("--precision", choices=("float32", "bfloat16"), required=True)
    parser.add_argument("--attention", choices=("sdpa", "eager"), required=True)
    arguments = parser.parse_args()
    run(
        arguments.folder,
        sampling=arguments.sampling,
        precision=arguments.precision,
        attention=arguments.attention,
        line=Line(),
    )
