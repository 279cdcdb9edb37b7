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


class Model:
    """An ONNX file and a session of it, which can be opened anew.

    Where a session's weights come to lie in memory moves its times by up to 7 %, for as long as it is open: files that
    differ in nothing were seen to differ so. Opened anew every few repetitions, no candidate keeps a lucky place.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.session = open_session(data)

    def reopen(self) -> None:
        self.session = open_session(self._data)


class SessionReady:
    """A model and the inputs of one answer, which may take several runs."""

    def __init__(self, model: Model, feeds: Sequence[dict[str, Array]]) -> None:
        self._model = model
        self._feeds = list(feeds)

    @classmethod
    def of_batches(cls, model: Model, batches: Sequence[Batch]) -> "SessionReady":
        return cls(model, [feed(model.session, batch) for batch in batches])

    def outputs(self) -> list[Array]:
        """The first output of each run."""
        return [self._model.session.run(None, inputs)[0] for inputs in self._feeds]

    def answer(self, times: int) -> list[float]:
        """See `Ready`."""
        session, seconds = self._model.session, []
        for _ in range(times):
            start = time.perf_counter()
            for inputs in self._feeds:
                session.run(None, inputs)
            seconds.append(time.perf_counter() - start)
        return seconds
