"""Good artifacts in a few seconds: nothing is trained, all else is real: tokenizer, export, proof, packaging."""

import json
import tempfile
import warnings
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.export import ExportedProgram

from export.artifact.layout import CONFUSION_FILE, EVALUATION_FILE, RELIABILITY_FILE
from export.artifact.load import softmax
from export.artifact.pack import write_artifact
from export.contract import (
    NO_ANSWER,
    TEXT_CLASSIFICATION,
    TOKENIZER_CONFIG_FILE,
    TOKENIZER_JSON_FILE,
)
from export.files import dump_json, sha256_bytes
from export.model import CONFIG_FILE, model_labels, model_limits, read_weights
from export.model import WEIGHTS_FILE as WEIGHTS
from export.onnx_export import ONNX_FILE
from export.precision_files import OPTIONAL_FILES, PRECISION_FILES, write_precision
from export.proof import report
from export.proof.prove import prove
from export.proof.runtimes import BACKENDS, EAGER, Backend, open_runtime
from export.proof.runtimes.pt2 import shared_program
from export.proof.task_metrics import TestBatch
from export.pt2 import PT2_FILE
from export.tokenizer import Tokenizer, huggingface_tokenizer, huggingface_tokenizer_config, train_tokenizer
from pipeline.evaluation import Answers, calibration_metrics, evaluation_document, threshold_metrics
from pipeline.tasks.metrics import macro_f1
from tests.export.proof.subjects import LABELS, TESTED, build_files, make_batches

Contents = dict[str, bytes]

# 5 reserved and 256 byte pieces, and some words.
VOCABULARY = 300
_WORDS = [
    "red",
    "green",
    "blue",
    "fast",
    "slow",
    "north",
    "south",
    "east",
    "west",
    "open",
    "closed",
    "left",
    "right",
    "early",
    "late",
    "warm",
    "cold",
]
# The smallest PNG there is: one grey pixel. Its text chunk makes one seed's picture differ from another's.
_PNG = bytes.fromhex("89504e470d0a1a0a0000000d49484452000000010000000108000000003a7e9b55")
_PNG_END = bytes.fromhex("0000000a49444154789c636800000082008177cd72b60000000049454e44ae426082")


# Kept until the next artifact is built, so that whoever proves and judges this one need not read it again.
_read_last: list[ExportedProgram] = []


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A small model: the seed of its weights and tokenizer, and where its configuration differs from the subjects'.

    `silent` is how many of the labels, the last ones, are never the answer; `precisions` adds the files of
    OPTIONAL_FILES.
    """

    seed: int = 0
    task: str = TEXT_CLASSIFICATION
    pooling: str = "mean_max"
    head: str = "mlp"
    labels: tuple[str, ...] = tuple(LABELS)
    threshold: float = 0.3
    silent: int = 0
    precisions: bool = False
    encoder: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        parts = [f"seed {self.seed}", self.task, self.pooling, self.head, f"{len(self.labels)} labels"]
        return ", ".join([*parts, *(f"{name} {value}" for name, value in self.encoder.items())])


def build_artifact(recipe: Recipe) -> Contents:
    """Build an artifact: the bytes of every file by name."""
    tokenizer = train_tokenizer(sample_texts(recipe.seed, 200), vocab_size=VOCABULARY)
    files = build_files(
        seed=recipe.seed,
        task=recipe.task,
        pooling=recipe.pooling,
        head=recipe.head,
        labels=recipe.labels,
        threshold=recipe.threshold,
        tokenizer=tokenizer,
        touch=partial(_touch, silent=recipe.silent),
        **{"vocab_size": VOCABULARY, **recipe.encoder},
    )
    if recipe.precisions:
        files |= {name: other_precision(files, name) for name in OPTIONAL_FILES}
    _read_last[:] = [shared_program(files[PT2_FILE])]
    limits = model_limits(json.loads(files[CONFIG_FILE]))
    assert Tokenizer(tokenizer, max_length=limits.max_length).vocab_size == VOCABULARY
    files[TOKENIZER_JSON_FILE] = huggingface_tokenizer(tokenizer, max_length=limits.max_length).encode()
    files[TOKENIZER_CONFIG_FILE] = dump_json(huggingface_tokenizer_config(max_length=limits.max_length)).encode()
    batches, accuracy = make_batches(files)
    told, record = _tell(files, batches, recipe.seed)
    proof = prove(
        files.__getitem__,
        batches,
        backends=[
            backend for backend in BACKENDS if backend.name in TESTED or (backend.file in files and _is_other(backend))
        ],
        recorded_accuracy=accuracy,
        # Of so few rows one is more than the usual budget.
        int8_loss=0.1,
    )
    assert proof.holds, proof.all_failures
    verification = {
        **report.document(proof),
        "inputs": {"files": {name: sha256_bytes(data) for name, data in files.items()}},
    }
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is deprecated; pytest lists that warning, a program has to
        write_artifact(Path(folder), files, told, version="1.0.0", record=record, verification=verification)
        return read_folder(Path(folder))


def _is_other(backend: Backend) -> bool:
    return backend.provider == "cpu" and backend.file in OPTIONAL_FILES


def other_precision(files: Contents, name: str) -> bytes:
    """Make one of OPTIONAL_FILES from model.onnx."""
    limits = model_limits(json.loads(files[CONFIG_FILE]))
    rng = np.random.default_rng(0)
    ids = rng.integers(0, limits.vocab_size, (16, limits.max_length))
    precision = next(precision for precision, file in PRECISION_FILES.items() if file == name)
    return write_precision(precision, files[ONNX_FILE], [(ids, np.ones_like(ids))], form="static")


def read_folder(folder: Path) -> Contents:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def write_folder(folder: Path, contents: Contents) -> Path:
    """Write the files into a new folder and return it."""
    folder.mkdir(parents=True)
    for name, data in contents.items():
        (folder / name).write_bytes(data)
    return folder


def sample_texts(seed: int, count: int) -> list[str]:
    """Return sentences of one to twelve common words, and of words that no other seed has."""
    rng = np.random.default_rng(seed)
    own = ["".join(rng.choice(list("abdegiklmnoprstu"), 6)) for _ in range(12)]
    words = np.array([*_WORDS, *own])
    return [" ".join(rng.choice(words, rng.integers(1, 13))) for _ in range(count)]


def _touch(model: torch.nn.Module, silent: int) -> None:
    """Give the model a weight of zero and a subnormal one, for faults that touch nothing else, and silence labels."""
    bias = next(tensor for name, tensor in model.named_parameters() if name.endswith("up.bias"))
    bias[0], bias[1] = 0.0, 1e-40
    if silent:
        last = [module for module in model.head.modules() if isinstance(module, torch.nn.Linear)][-1]
        # Always below the first label's logit, whatever the input.
        last.weight[-silent:] = last.weight[0]
        last.bias[-silent:] = last.bias[0] - torch.tensor([1.0, 1.5])[:silent]


def _tell(files: Contents, batches: list[TestBatch], seed: int) -> tuple[Contents, dict[str, Any]]:
    """Evaluate the model on its test split, which serves as validation split too, and write the record of training."""
    config = json.loads(files[CONFIG_FILE])
    answers = _answer(files, batches, config["temperature"])
    metrics: dict[str, Any] = {
        "accuracy": float(answers.correct.mean()),
        "macro_f1": macro_f1(answers.given, answers.expected),
        **calibration_metrics(answers),
        **threshold_metrics(answers, np.empty(0), config["threshold"]),
    }
    rows = sum(len(batch.labels) for batch in batches)
    metrics = {name: round(value, 6) for name, value in metrics.items()} | {"rows": rows, "answers": len(answers.given)}
    both = {"validation": metrics, "test": metrics}
    told = {name: _picture(name, seed) for name in (CONFUSION_FILE, RELIABILITY_FILE)}
    pictures = {name: sha256_bytes(data) for name, data in told.items()}
    document = evaluation_document(answers, model_labels(config), both, pictures)
    told[EVALUATION_FILE] = dump_json(document).encode()
    parameters = sum(weight.numel() for weight in read_weights(files[WEIGHTS]).values())
    record = {
        "name": "planted",
        "metrics": both,
        "golden_texts": sample_texts(seed, 6),
        "training": {"parameters": parameters},
        "data": {
            "name": "sentences",
            "sha256": sha256_bytes(str(seed).encode()),
            "licence": "Apache-2.0",
            "attribution": "made up",
            "origin": "made up",
            "rows": {"train": rows, "validation": rows, "test": rows},
            "truncated_rows": {"train": 0, "validation": 0, "test": 0},
        },
    }
    return told, record


def _answer(files: Contents, batches: list[TestBatch], temperature: float) -> Answers:
    eager = open_runtime(EAGER, files.__getitem__)
    logits, expected = [], []
    for batch in batches:
        asked = batch.labels != NO_ANSWER
        logits.append(eager.run(batch.input_ids, batch.attention_mask)[asked])
        expected.append(batch.labels[asked])
    together = np.concatenate(logits)
    return Answers(
        given=together.argmax(axis=1),
        expected=np.concatenate(expected),
        confidence=softmax(together, temperature).max(axis=1),
        raw_confidence=softmax(together).max(axis=1),
    )


def _picture(name: str, seed: int) -> bytes:
    text = f"{name} of seed {seed}".encode("latin-1")
    body = b"tEXtComment\0" + text
    chunk = len(body[4:]).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")
    return _PNG + chunk + _PNG_END
