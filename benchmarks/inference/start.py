"""How long it takes from a file's bytes to a session, and from there to the first answer, in a fresh process.

`python -m benchmarks.inference.start FILE` is that process; it prints the two in seconds.
"""

import json
import random
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from benchmarks.inference.options import session_options

ROOT = Path(__file__).resolve().parent.parent.parent
# The shape of the first answer.
FIRST = (1, 16)


def measure_starts(files: Mapping[str, Path], repetitions: int, *, seed: int = 0) -> list[dict[str, Any]]:
    """Start each file so many times, in turns; return its size in bytes and the medians in milliseconds."""
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in files}
    order = list(files)
    shuffle = random.Random(seed).shuffle
    for _ in range(repetitions):
        shuffle(order)
        for name in order:
            command = [sys.executable, "-m", "benchmarks.inference.start", str(files[name].absolute())]
            answer = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
            seconds[name].append(tuple(json.loads(answer.stdout)))
    return [
        {
            "candidate": name,
            "bytes": files[name].stat().st_size,
            "load_ms": round(1e3 * float(np.median([load for load, _ in seconds[name]])), 2),
            "first_ms": round(1e3 * float(np.median([first for _, first in seconds[name]])), 2),
        }
        for name in files
    ]


def start(model: bytes) -> tuple[float, float]:
    """Load a model and let it answer once."""
    began = time.perf_counter()
    session = ort.InferenceSession(model, session_options(), providers=["CPUExecutionProvider"])
    loaded = time.perf_counter()
    # All ids and masks 1, and so BERT's token types, which take as long as 0.
    session.run(None, {value.name: np.ones(FIRST, np.int64) for value in session.get_inputs()})
    return loaded - began, time.perf_counter() - loaded


if __name__ == "__main__":
    print(json.dumps(start(Path(sys.argv[1]).read_bytes())))
