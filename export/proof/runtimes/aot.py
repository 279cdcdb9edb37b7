"""The .pt2 file compiled by AOTInductor, as a C++ service would have it, in a process of its own.

Its machine code may end the process that runs it (a sequence of length 0 does, by SIGFPE): that is an error here, and
the next input gets a fresh process, with the library that was built before. The library, and all that building it
leaves, lies in a temporary folder that goes with the backend.

Building takes half a minute on one core, most of it in the C++ compiler.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from contextlib import suppress
from pathlib import Path

from export.proof.runtimes.aot_child import ANSWER, FAILURE, MODEL, READY, decode, encode, read_frame, write_frame
from export.proof.runtimes.base import THREADS, Array, BackendError, Ids, Read, Runtime
from export.proof.runtimes.compiler import find_compiler, missing_for_aot
from export.pt2 import PT2_FILE

AOT_INDUCTOR = "aot-inductor"

_ROOT = Path(__file__).resolve().parents[3]
_CHILD = "export.proof.runtimes.aot_child"
# A process that has closed its output is about to end; the system may write its memory to the disk before.
_LAST_SECONDS = 30.0
# Building takes half a minute, on a busy machine some minutes; a compiler that waits for a licence may do so for ever.
_PATIENCE = 900.0


class AotRuntime(Runtime):
    """A compiled model behind two pipes."""

    name = AOT_INDUCTOR

    def __init__(self, read: Read) -> None:
        """Begin to build the library; `wait` tells whether it can be built and loaded.

        Raises:
            BackendError: if there is no compiler.
        """
        missing = missing_for_aot()
        if missing:
            raise BackendError(f"AOTInductor can't be run here: {'; '.join(missing)}")
        self._folder = Path(tempfile.mkdtemp(prefix="ferry-aot-"))
        self._children: list[subprocess.Popen[bytes]] = []
        self._loaded = False
        weakref.finalize(self, _clear, self._children, self._folder)
        (self._folder / MODEL).write_bytes(read(PT2_FILE))
        self._start()

    def wait(self) -> None:
        """See `Runtime`."""
        if not self._loaded:
            self._ask()
            self._loaded = True

    def run(self, input_ids: Ids, attention_mask: Ids) -> Array:
        """See `Runtime`."""
        if self._child.poll() is not None and self._loaded:
            self._start()
        self.wait()
        return decode(self._ask(encode(input_ids), encode(attention_mask)))

    def _start(self) -> None:
        """Start a process, which builds and loads the library, or loads the one that there is."""
        self._loaded = False
        with (self._folder / "stderr").open("wb") as messages:
            self._child = subprocess.Popen(
                [sys.executable, "-m", _CHILD, str(self._folder)],
                cwd=_ROOT,
                env=_environment(self._folder),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=messages,
                # A group of its own, so that it ends with every compiler that it started.
                start_new_session=True,
            )
        self._children.append(self._child)

    def _ask(self, *frames: bytes) -> bytes:
        """Send the frames of a question, none right after the start, and return the answer."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        late = threading.Event()
        patience = threading.Timer(_PATIENCE, _give_up, [self._child, late])
        patience.start()
        try:
            for frame in frames:
                write_frame(self._child.stdin, frame)
            answer = read_frame(self._child.stdout)
        except OSError:
            answer = None
        finally:
            patience.cancel()
        if late.is_set():
            raise BackendError(f"the process of the compiled model gave no answer within {_PATIENCE:g} s")
        if answer is None:
            raise BackendError(self._cause_of_death())
        kind, content = answer[:1], answer[1:]
        if kind == FAILURE:
            raise BackendError(content.decode())
        assert kind == (ANSWER if frames else READY)
        return content

    def _cause_of_death(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(_LAST_SECONDS)
        _end(self._child)
        code = self._child.returncode
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        words = (self._folder / "stderr").read_text("utf-8", "replace").split("\n")
        last = next((line.strip() for line in reversed(words) if line.strip()), "")
        return f"the process of the compiled model ended {how}{': ' if last else ''}{last}"


def _environment(folder: Path) -> dict[str, str]:
    """Return this process's environment, with one thread, every cache in `folder`, and no settings for the compiler."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TORCHINDUCTOR_", "TORCH_LOGS"))}
    compiler = find_compiler()
    assert compiler is not None
    return {
        **kept,
        "CXX": compiler,
        "OMP_NUM_THREADS": str(THREADS),
        "MKL_NUM_THREADS": str(THREADS),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"),
        "TMPDIR": str(folder),
        "PYTHONHASHSEED": "0",
        # Its warnings are torch's own, and nobody reads them.
        "PYTHONWARNINGS": "ignore",
    }


def _clear(children: "list[subprocess.Popen[bytes]]", folder: Path) -> None:
    for child in children:
        _end(child)
    shutil.rmtree(folder, ignore_errors=True)


def _give_up(child: "subprocess.Popen[bytes]", late: threading.Event) -> None:
    late.set()
    _kill(child)


def _kill(child: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


def _end(child: "subprocess.Popen[bytes]") -> None:
    """End a process, with all that it started, if it has not ended."""
    for stream in (child.stdin, child.stdout):
        assert stream is not None
        with suppress(OSError):
            stream.close()
    if child.poll() is None:
        _kill(child)
    child.wait()
