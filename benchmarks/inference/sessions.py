"""Candidates that are ONNX files: they all run in this process, on one ONNX Runtime with one set of options."""

import time
from collections.abc import Sequence

import numpy as np
import onnxruntime as ort

from benchmarks.inference.options import session_options
from benchmarks.inference.work import Batch
from export.contract import ATTENTION_MASK, INPUT_IDS
from export.proof.runtimes import Array

TOKEN_TYPE_IDS = "token_type_ids"


def open_session(model: bytes) -> ort.InferenceSession:
    return ort.InferenceSession(model, session_options(), providers=["CPUExecutionProvider"])


def feed(session: ort.InferenceSession, batch: Batch) -> dict[str, Array]:
    """Return a batch as a classifier's inputs; BERT's token types are all 0."""
    tensors = {INPUT_IDS: batch.ids, ATTENTION_MASK: batch.mask, TOKEN_TYPE_IDS: np.zeros_like(batch.ids)}
    return {value.name: tensors[value.name] for value in session.get_inputs()}


class SessionReady:
    """A session and the inputs of one answer, which may take several runs."""

    def __init__(self, session: ort.InferenceSession, feeds: Sequence[dict[str, Array]]) -> None:
        self._session = session
        self._feeds = list(feeds)

    @classmethod
    def of_batches(cls, session: ort.InferenceSession, batches: Sequence[Batch]) -> "SessionReady":
        return cls(session, [feed(session, batch) for batch in batches])

    def outputs(self) -> list[Array]:
        """The first output of each run."""
        return [self._session.run(None, inputs)[0] for inputs in self._feeds]

    def answer(self, times: int) -> list[float]:
        """See `Ready`."""
        seconds = []
        for _ in range(times):
            start = time.perf_counter()
            for inputs in self._feeds:
                self._session.run(None, inputs)
            seconds.append(time.perf_counter() - start)
        return seconds
