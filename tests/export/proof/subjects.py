"""Builds what the proof room judges: a model's files with consistent metadata, and a test split."""

import json
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from export import __version__
from export.capture import capture
from export.contract import (
    NO_ANSWER,
    TEXT_CLASSIFICATION,
    TOKENIZER_CONFIG_FILE,
    TOKENIZER_FILE,
    TOKENIZER_JSON_FILE,
)
from export.files import dump_json, sha256_bytes
from export.model import (
    CONFIG_FILE,
    TASKS,
    WEIGHTS_FILE,
    build_model,
    describe_model,
    model_limits,
    model_metadata,
    restore_model,
    serialise_weights,
)
from export.onnx_export import ONNX_FILE, export_onnx
from export.profiles import DEFAULT_PROFILE, PROFILES
from export.proof.prove import Proof, prove
from export.proof.runtimes import BACKENDS, EAGER, open_runtime
from export.proof.task_metrics import TestBatch
from export.pt2 import MINIMUM_TORCH, PT2_FILE, export_pt2
from export.torchscript import MINIMUM_LIBTORCH, TORCHSCRIPT_FILE, export_torchscript
from models.config import EncoderConfig

LABELS = ["MIT", "Apache-2.0", "BSD-3-Clause", "ISC", "Zlib"]
ENCODER = {"vocab_size": 40, "max_len": 19, "dim": 16, "num_layers": 1, "num_heads": 2, "hidden_dim": 32}
# Off, because what its optimisations would hide must be seen; all, because that is what users run.
TESTED = (EAGER, "torchscript", "onnxruntime-cpu-off", "onnxruntime-cpu-all", "pt2")


def build_files(
    *,
    seed: int = 0,
    task: str = TEXT_CLASSIFICATION,
    pooling: str = "mean_max",
    head: str = "mlp",
    labels: Sequence[str] = LABELS,
    threshold: float = 0.3,
    tokenizer: bytes = b"stands for a tokenizer",
    touch: Callable[[torch.nn.Module], None] | None = None,
    profile: str = DEFAULT_PROFILE,
    **encoder: Any,
) -> dict[str, bytes]:
    """Build config, weights, every model file and the tokenizer, with weights that make large logits.

    `touch` may change the weights before they are written.
    """
    config = describe_model(
        task,
        EncoderConfig(**{**ENCODER, **encoder}),
        pooling=None if TASKS[task].per_token else pooling,
        head=head,
        labels=list(labels),
        temperature=0.8,
        threshold=threshold,
    )
    generator = torch.Generator().manual_seed(seed)
    # Fresh weights come from the global generator, whose state depends on what ran before.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = build_model(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
        if touch:
            touch(model)
    files = {
        CONFIG_FILE: dump_json(config).encode(),
        WEIGHTS_FILE: serialise_weights(model),
        TOKENIZER_FILE: tokenizer,
        TOKENIZER_CONFIG_FILE: b"{}",
        TOKENIZER_JSON_FILE: b"{}",
    }
    return {**files, **export_all(files, model.eval().requires_grad_(False), profile)}


def export_all(files: dict[str, bytes], model: torch.nn.Module, profile: str = DEFAULT_PROFILE) -> dict[str, bytes]:
    metadata = metadata_of(files, profile)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own; its tests say which
        program = capture(model, model_limits(json.loads(files[CONFIG_FILE])))
        return {
            TORCHSCRIPT_FILE: export_torchscript(model, metadata),
            ONNX_FILE: export_onnx(program, metadata, PROFILES[profile]),
            PT2_FILE: export_pt2(program, metadata),
        }


def metadata_of(files: dict[str, bytes], profile: str = DEFAULT_PROFILE) -> dict[str, Any]:
    config = json.loads(files[CONFIG_FILE])
    return model_metadata(
        config,
        profile=profile,
        tokenizer_sha256=sha256_bytes(files[TOKENIZER_FILE]),
        weights_sha256=sha256_bytes(files[WEIGHTS_FILE]),
        versions={"ferry": __version__, "torch": torch.__version__.partition("+")[0]},
        minimum_runtime={
            "onnxruntime": PROFILES[profile].minimum_onnxruntime,
            "libtorch": MINIMUM_LIBTORCH,
            "torch": MINIMUM_TORCH,
        },
    )


def eager_model(files: dict[str, bytes]) -> torch.nn.Module:
    model: torch.nn.Module = restore_model(json.loads(files[CONFIG_FILE]), files[WEIGHTS_FILE])
    return model


def make_batches(files: dict[str, bytes]) -> tuple[list[TestBatch], float]:
    """Make a test split of which the model gives about four answers in five rightly, and its accuracy."""
    limits = model_limits(json.loads(files[CONFIG_FILE]))
    num_labels = len(json.loads(files[CONFIG_FILE])["id2label"])
    rng = np.random.default_rng(0)
    eager = open_runtime(EAGER, files.__getitem__)
    batches, correct, asked = [], 0, 0
    for length in sorted({min(2, limits.max_length), min(9, limits.max_length), limits.max_length}):
        ids = rng.integers(0, limits.vocab_size, (10, length))
        mask = np.ones_like(ids)
        mask[5:, length // 2 + 1 :] = 0
        answers = eager.run(ids, mask).argmax(axis=-1)
        labels = np.where(rng.random(answers.shape) < 0.2, (answers + 1) % num_labels, answers)
        if answers.ndim == 2:
            labels[mask == 0] = NO_ANSWER
        correct += int((answers == labels).sum())
        asked += int((labels != NO_ANSWER).sum())
        batches.append(TestBatch(input_ids=ids, attention_mask=mask, labels=labels))
    return batches, correct / asked


def prove_files(files: dict[str, bytes], truth: dict[str, bytes] | None = None) -> Proof:
    """Prove files; the test split comes from `truth`, the files before they were sabotaged."""
    batches, accuracy = make_batches(truth or files)
    backends = [backend for backend in BACKENDS if backend.name in TESTED]
    return prove(files.__getitem__, batches, backends=backends, recorded_accuracy=accuracy)
