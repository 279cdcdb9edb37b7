"""The process of the compiled model: `python -m export.proof.runtimes.aot_child FOLDER`.

It builds FOLDER/model.pt2 into a library, unless a process before it has, loads that, says that it is ready, and then
answers: two frames in, ids and mask, one frame out. A frame is its length in eight bytes, then its content; arrays are
in numpy's format, without pickle. When its input ends, by whatever end of the process that asks, it removes FOLDER and
ends, and with it the compilers that it started.
"""

import io
import os
import queue
import shutil
import signal
import sys
import threading
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch

from export.proof.runtimes.base import THREADS, Array, last_line
from export.proof.runtimes.torch_runtime import TORCH_ERRORS
from export.pt2 import read_pt2

MODEL = "model.pt2"
_LIBRARY = "library.pt2"
# The kinds of frame that come out: their first byte.
READY, ANSWER, FAILURE = b"r", b"a", b"f"

_LENGTH_BYTES = 8


def write_frame(stream: IO[bytes], content: bytes) -> None:
    """Write a frame and send it off."""
    stream.write(len(content).to_bytes(_LENGTH_BYTES, "little"))
    stream.write(content)
    stream.flush()


def read_frame(stream: IO[bytes]) -> bytes | None:
    """Read a frame; None where the stream ends before its last byte."""
    head = stream.read(_LENGTH_BYTES)
    content = stream.read(int.from_bytes(head, "little"))
    whole = len(head) == _LENGTH_BYTES and len(content) == int.from_bytes(head, "little")
    return content if whole else None


def encode(array: Array) -> bytes:
    """Write an array in numpy's format."""
    buffer = io.BytesIO()
    # The library takes every array for a contiguous one.
    np.save(buffer, np.ascontiguousarray(array), allow_pickle=False)
    return buffer.getvalue()


def decode(content: bytes) -> Array:
    """Read an array back."""
    array: Array = np.load(io.BytesIO(content), allow_pickle=False)
    return array


def main() -> None:
    folder = Path(sys.argv[1])
    # Compilers print, and would inherit both pipes.
    questions, answers = (os.fdopen(os.dup(number), mode) for number, mode in ((0, "rb"), (1, "wb")))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    frames: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(questions, frames, folder), daemon=True).start()
    torch.set_num_threads(THREADS)
    try:
        model = _load(folder)
    except TORCH_ERRORS as error:
        write_frame(answers, FAILURE + last_line(error).encode())
        return
    write_frame(answers, READY)
    while True:
        write_frame(answers, _answer(model, frames.get(), frames.get()))


def _listen(questions: IO[bytes], frames: "queue.SimpleQueue[bytes]", folder: Path) -> None:
    """Hand frames on until there are no more, also while the main thread waits for a compiler."""
    while (frame := read_frame(questions)) is not None:
        frames.put(frame)
    shutil.rmtree(folder, ignore_errors=True)
    os.killpg(0, signal.SIGKILL)


def _load(folder: Path) -> Any:
    library = folder / _LIBRARY
    if not library.exists():
        program, _ = read_pt2((folder / MODEL).read_bytes())
        example = torch.zeros(2, 2, dtype=torch.int64)
        program.example_inputs = ((example, torch.ones_like(example)), {})
        # Headers would be compiled in advance, for a hundred libraries to come.
        settings = {"aot_inductor.precompile_headers": False, "cpp_cache_precompile_headers": False}
        torch._inductor.aoti_compile_and_package(program, package_path=str(library), inductor_configs=settings)
    return torch._inductor.aoti_load_package(str(library))


def _answer(model: Any, input_ids: bytes, attention_mask: bytes) -> bytes:
    try:
        with torch.inference_mode():
            logits = model(torch.from_numpy(decode(input_ids)), torch.from_numpy(decode(attention_mask)))
    except TORCH_ERRORS as error:
        # The lines below the first are addresses.
        return FAILURE + (str(error).strip() or type(error).__name__).partition("\n")[0].encode()
    return ANSWER + encode(logits.numpy())


if __name__ == "__main__":
    main()
