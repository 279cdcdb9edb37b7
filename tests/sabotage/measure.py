"""How far a fault moves the function, in budgets: measured here, on more inputs than the judge's, and never assumed.

The function is what a service sees: texts to tokens, tokens to logits, logits to labels and probabilities.
"""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.export import ExportedProgram

from export.artifact.goldens import HOSTILE_TEXTS, PROBABILITY_TOLERANCE
from export.artifact.layout import MANIFEST_FILE, VERIFICATION_FILE
from export.artifact.load import decide
from export.contract import TOKENIZER_FILE, Limits
from export.files import parse_json
from export.model import model_limits
from export.onnx_export import ONNX_FILE
from export.proof.cases import MASKS, Ids, build_grid
from export.proof.runtimes import BackendError, Runtime, one_torch_thread, open_runtime
from export.proof.runtimes.pt2 import shared_program
from export.proof.tolerance import distance
from export.pt2 import PT2_FILE
from export.tokenizer import Tokenizer, pad_batch
from export.torchscript import TORCHSCRIPT_FILE
from tests.sabotage.artifact import Contents, sample_texts

# What answers for a model file.
ANSWERS = {TORCHSCRIPT_FILE: "torchscript", ONNX_FILE: "onnxruntime-cpu-all", PT2_FILE: "pt2"}
_BATCHES = (1, 4, 5, 9, 13)
_SEED = 20

Answer = npt.NDArray[Any] | None


@dataclass(frozen=True)
class Movement:
    """The largest distance between a sabotaged file's answers and the good one's, in budgets.

    Infinite where an answer is missing, not finite, of another shape or a clearly different label; None where nothing
    that answers was changed, or where a file answers nothing at all.
    """

    budgets: float | None
    loads: bool = True

    @property
    def beyond(self) -> bool:
        return self.budgets is not None and self.budgets > 1

    def __str__(self) -> str:
        if not self.loads:
            return "no load"
        if self.budgets is None:
            return "-"
        if np.isinf(self.budgets):
            return "inf"
        return f"{self.budgets:.2g}" if self.budgets < 1000 else f"{self.budgets:.0e}"


class Yardstick:
    """A good artifact's answers, to which sabotaged ones are compared."""

    def __init__(self, contents: Contents) -> None:
        self.contents = contents
        self.budget: float = json.loads(contents[VERIFICATION_FILE])["parity"]["tolerance"]["limit"]
        self.limits = model_limits(json.loads(contents["config.json"]))
        self.inputs = list(_inputs(self.limits))
        # Kept, for most sabotaged artifacts have the same one, and then nobody has to read it again.
        self.program = shared_program(contents[PT2_FILE])
        # Likewise, until the next artifact is measured, for whoever judges this one.
        self.planted: ExportedProgram | None = None
        self.texts = [*HOSTILE_TEXTS, *sample_texts(_SEED, 60), "word " * self.limits.max_length]

    def measure(self, contents: Contents) -> Movement:
        """Compare an artifact's answers with the good one's."""
        with suppress(ValueError, KeyError):
            self.planted = shared_program(contents[PT2_FILE])
        changed = [name for name in ANSWERS if contents.get(name) != self.contents[name]]
        found = [self._measure_file(contents, name) for name in changed]
        if contents.get(TOKENIZER_FILE) != self.contents[TOKENIZER_FILE] or self._told_otherwise(contents):
            found.append(self._measure_texts(contents))
        known = [movement.budgets for movement in found if movement.budgets is not None]
        return Movement(
            budgets=max(known, default=None), loads=all(movement.loads for movement in found) if found else True
        )

    @cached_property
    def _answers(self) -> dict[str, list[Answer]]:
        return {name: run(load(self.contents, name), self.inputs) for name in ANSWERS}

    def _measure_file(self, contents: Contents, name: str) -> Movement:
        try:
            runtime = load(contents, name)
        except (BackendError, KeyError):
            return Movement(None, loads=False)
        moved = 0.0
        for got, wanted in zip(run(runtime, self.inputs), self._answers[name], strict=True):
            assert wanted is not None
            usable = got is not None and got.shape == wanted.shape and bool(np.isfinite(got).all())
            moved = max(moved, distance(got, wanted) if usable and got is not None else np.inf)
        return Movement(moved / self.budget)

    def _told_otherwise(self, contents: Contents) -> bool:
        """Whether a loader would be told other limits, labels or numbers; hashes and versions aside."""
        keys = ("limits", "labels", "activation", "temperature", "threshold")
        try:
            got, wanted = (parse_json(files[MANIFEST_FILE])["metadata"] for files in (contents, self.contents))
            return any(got[key] != wanted[key] for key in keys)
        except (ValueError, KeyError, TypeError, RecursionError):
            # Nothing can be told by a manifest that readers refuse.
            return False

    @cached_property
    def _told(self) -> list[Any]:
        return list(answer_texts(self.contents, self.texts))

    def _measure_texts(self, contents: Contents) -> Movement:
        try:
            got = list(answer_texts(contents, self.texts))
        except BackendError:
            # A text without an answer, such as one that is not cut any more.
            return Movement(np.inf)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
            # The manifest or the tokenizer can't be read; the model files are judged by themselves.
            return Movement(None)
        moved = 0.0
        for (logits, label, probability), (wanted, wanted_label, wanted_probability) in zip(
            got, self._told, strict=True
        ):
            same = logits.shape == wanted.shape and bool(np.isfinite(logits).all())
            moved = max(moved, distance(logits, wanted) / self.budget if same else np.inf)
            moved = max(moved, abs(probability - wanted_probability) / PROBABILITY_TOLERANCE)
            if label != wanted_label:
                moved = np.inf
        return Movement(moved)


def load(contents: Contents, name: str) -> Runtime:
    return open_runtime(ANSWERS[name], contents.__getitem__)


def run(runtime: Runtime, inputs: list[tuple[Ids, Ids]]) -> list[Answer]:
    """Run inputs; None where there is no answer."""
    answers: list[Answer] = []
    torch.manual_seed(_SEED)
    with one_torch_thread():
        for ids, mask in inputs:
            try:
                answers.append(runtime.run(ids, mask))
            except BackendError:
                answers.append(None)
    return answers


def answer_texts(contents: Contents, texts: list[str]) -> Iterator[tuple[npt.NDArray[Any], str | None, float]]:
    """Yield what a service answers to each text: logits, the label of the first answer, its probability."""
    metadata = parse_json(contents[MANIFEST_FILE])["metadata"]
    tokenizer = Tokenizer(contents[TOKENIZER_FILE], max_length=metadata["limits"]["sequence_length"]["max"])
    runtime = load(contents, ONNX_FILE)
    for text in texts:
        logits = runtime.run(*pad_batch([tokenizer.encode(text)]))
        flat = logits.reshape(-1, logits.shape[-1])
        ((label, probability), *_) = decide(flat, metadata["labels"], metadata["temperature"], metadata["threshold"])
        yield logits, label, probability


def _inputs(limits: Limits) -> Iterator[tuple[Ids, Ids]]:
    """Yield the judge's grid, and every length under random masks with ids of all kinds."""
    for case in build_grid(limits):
        yield case.input_ids, case.attention_mask
    rng = np.random.default_rng(_SEED)
    for length in range(1, limits.max_length + 1):
        for batch in _BATCHES:
            kind = list(MASKS)[int(rng.integers(len(MASKS)))]
            ids = rng.integers(0, limits.vocab_size, (batch, length), np.int64)
            # A mask of one column turned round keeps a negative stride, which torch does not take.
            yield ids, MASKS[kind](batch, length, rng).copy()
            yield ids, (rng.random((batch, length)) < rng.random((batch, 1))).astype(np.int64)
