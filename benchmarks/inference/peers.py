"""The peers: what a user would pick instead, in an environment of their own, which `make bench` makes.

Those that are ONNX files are made there and run here, on the ONNX Runtime that ours runs on; the others answer from a
process of that environment, which times itself.
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.inference.options import THREADS
from benchmarks.inference.work import Batch
from export.contract import canonical_json
from export.errors import FerryError
from export.files import dump_json, new_folder, sha256_bytes, sha256_file
from export.proof.runtimes import Array
from models.config import EncoderConfig

ROOM = Path(__file__).resolve().parent.parent / "peers"
REQUIREMENTS = ROOM / "requirements.txt"
ONNX_FILE = "model.onnx"
JOB_FILE = "job.json"
# How long OpenMP's threads spin after an answer, in milliseconds: not into the next candidate's.
_SPIN_MS = "5"


@dataclass(frozen=True, kw_only=True)
class PeerRow:
    """A peer: a form of make_models.py; and if that is no ONNX file to run here, the engine that answers.

    An engine is a process of answer.py with all its candidates. `beside` marks what is not to be had on ONNX Runtime or
    PyTorch: measured, and compared with apart.
    """

    title: str
    form: str | None = None
    engine: str | None = None
    int8: bool = False
    beside: bool = False

    @property
    def is_file(self) -> bool:
        return self.engine is None


PEERS: dict[str, PeerRow] = {
    "optimum-plain": PeerRow(title="Optimum, plain", form="plain"),
    "optimum-O1": PeerRow(title="Optimum O1", form="O1"),
    "optimum-O2": PeerRow(title="Optimum O2", form="O2"),
    "optimum-O3": PeerRow(title="Optimum O3", form="O3"),
    "eager": PeerRow(title="Hugging Face eager", engine="torch"),
    "compile": PeerRow(title="torch.compile", engine="torch"),
    "transformer-encoder": PeerRow(title="nn.TransformerEncoder", engine="torch"),
    "sentence-transformers": PeerRow(title="sentence-transformers, ONNX", form="sentence-transformers", engine="torch"),
    "openvino": PeerRow(title="OpenVINO", form="plain", engine="openvino", beside=True),
    "ctranslate2": PeerRow(title="CTranslate2", form="ctranslate2", engine="ctranslate2", beside=True),
    "optimum-plain-int8": PeerRow(title="Optimum int8, plain", form="plain-int8", int8=True),
    "optimum-plain-int8-channel": PeerRow(
        title="Optimum int8, plain, per channel", form="plain-int8-channel", int8=True
    ),
    "optimum-O3-int8": PeerRow(title="Optimum int8, O3", form="O3-int8", int8=True),
    "optimum-O3-int8-channel": PeerRow(title="Optimum int8, O3, per channel", form="O3-int8-channel", int8=True),
}


def bert_arguments(encoder: EncoderConfig, num_labels: int) -> dict[str, int]:
    """Return BertConfig's arguments for the dimensions of an encoder."""
    return {
        "vocab_size": encoder.vocab_size,
        "hidden_size": encoder.dim,
        "num_hidden_layers": encoder.num_layers,
        "num_attention_heads": encoder.num_heads,
        "intermediate_size": encoder.hidden_dim,
        "max_position_embeddings": encoder.max_len,
        "num_labels": num_labels,
    }


def make_peers(python: Path, work: Path, job: Mapping[str, Any]) -> Path:
    """Make the peers' model files, unless they are there, and return their folder.

    Args:
        python: the interpreter of the peers' environment.
        work: the folder of files that can be made again.
        job: what make_models.py is asked for.

    Raises:
        FerryError: if they can't be made; the message names the log.
    """
    script = ROOM / "make_models.py"
    key = sha256_bytes(canonical_json([job, sha256_file(script), sha256_file(REQUIREMENTS)]).encode())[:16]
    folder = work / f"peers-{key}"
    if not folder.exists():
        work.mkdir(parents=True, exist_ok=True)
        log = work / "peers.log"
        with new_folder(folder, replace=False) as new, log.open("wb") as messages:
            (new / JOB_FILE).write_text(dump_json(job), "utf-8")
            command = [str(python), str(script), str(new), str(new / JOB_FILE)]
            status = subprocess.run(command, stdout=messages, stderr=messages, env=_environment(work)).returncode
            if status != 0:
                raise FerryError(f"the peers' models can't be made: {_last_line(log)}. {log} holds the rest.")
    return folder


def needed_forms(peers: Iterable[str]) -> list[str]:
    """Return the forms that make_models.py must make, those that others are made of among them."""
    forms = {PEERS[name].form for name in peers} - {None}
    if any(form.startswith("O3") for form in forms if form):
        forms.add("O3")
    if "ctranslate2" in forms:
        forms.add("sentence-transformers")
    return sorted({"plain", *(form for form in forms if form)})


class Worker:
    """A process of the peers' environment that holds one engine and answers one request at a time."""

    def __init__(self, python: Path, engine: str, candidates: Sequence[str], models: Path, work: Path) -> None:
        """Start it; `models` is the folder of one model, `candidates` are the engine's, keys of PEERS."""
        self._engine = engine
        self._log = work / f"{engine}.log"
        self._scratch = tempfile.TemporaryDirectory()
        command = [str(python), str(ROOM / "answer.py"), str(models.absolute()), str(THREADS), *candidates]
        with self._log.open("wb") as messages:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=messages,
                text=True,
                env=_environment(work),
            )
        self._read()

    def prepare(self, candidate: str, batch: Batch) -> "WorkerReady":
        """Hand a batch over.

        Raises:
            FerryError: if the engine fails; the message names its log.
        """
        file = Path(self._scratch.name) / "batch.npz"
        np.savez(file, ids=batch.ids, mask=batch.mask)
        answer = self.ask({"prepare": candidate, "batch": str(file)})
        return WorkerReady(self, candidate, np.asarray(answer["logits"], np.float32))

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request and wait for its answer.

        Raises:
            FerryError: if the process has ended.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            self._fail()
        return self._read()

    def close(self) -> None:
        """End the process, and wait until it has."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()
        self._scratch.cleanup()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._fail()
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _fail(self) -> None:
        self.close()
        raise FerryError(f"the peer {self._engine} has ended: {_last_line(self._log)}. {self._log} holds the rest.")


@dataclass(frozen=True)
class WorkerReady:
    """A peer in its own process with a batch; `logits` is what it answered first."""

    worker: Worker
    candidate: str
    logits: Array

    def outputs(self) -> Sequence[Array]:
        """See `SessionReady`."""
        return [self.logits]

    def answer(self, times: int) -> list[float]:
        """See `Ready`."""
        seconds: list[float] = self.worker.ask({"answer": self.candidate, "times": times})["seconds"]
        return seconds


def _environment(work: Path) -> dict[str, str]:
    # What PyTorch compiled once is found again.
    cache = str((work / "inductor").absolute())
    own = {"OMP_NUM_THREADS": str(THREADS), "KMP_BLOCKTIME": _SPIN_MS, "TORCHINDUCTOR_CACHE_DIR": cache}
    return {**{name: value for name, value in os.environ.items() if name != "PYTHONPATH"}, **own}


def _last_line(log: Path) -> str:
    lines = log.read_text("utf-8", "replace").strip().splitlines()
    return lines[-1].strip().rstrip(".") if lines else "it said nothing"
