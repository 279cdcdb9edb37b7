"""The compiled model in its process: right on every kind of input, and wrong ends told, without a trace left."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from export.model import CONFIG_FILE
from export.proof.runtimes import EAGER, BackendError, Ids, aot, missing_for_aot, open_runtime
from export.proof.runtimes.aot import AotRuntime
from export.proof.runtimes.aot_child import READY, read_frame
from export.proof.runtimes.compiler import find_compiler
from export.pt2 import PT2_FILE
from tests.export.proof.subjects import build_files

ROOT = Path(__file__).resolve().parents[3]
needs_a_compiler = pytest.mark.skipif(bool(missing_for_aot()), reason="; ".join(missing_for_aot()))
# Two float32 runs of one function, whose logits are near 10: 2e-6 was seen.
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


@pytest.fixture(scope="module")
def compiled(good: dict[str, bytes]) -> AotRuntime:
    """The small model, compiled once: that takes half a minute."""
    runtime = AotRuntime(good.__getitem__)
    runtime.wait()
    return runtime


def ones(batch: int, length: int) -> Ids:
    return np.ones((batch, length), dtype=np.int64)


@needs_a_compiler
@pytest.mark.parametrize("shape", [(1, 1), (3, 1), (1, 19), (5, 13)], ids=lambda shape: "B{}-T{}".format(*shape))
def test_the_answer_is_eagers(good: dict[str, bytes], compiled: AotRuntime, shape: tuple[int, int]) -> None:
    ids = np.random.default_rng(0).integers(0, 40, shape)
    eager = open_runtime(EAGER, good.__getitem__)
    one_empty = ones(*shape)
    one_empty[-1] = 0
    for mask in (ones(*shape), ids % 2, one_empty, 0 * ids):
        logits = compiled.run(ids, mask)
        assert logits.dtype == np.float32
        np.testing.assert_allclose(logits, eager.run(ids, mask), **CLOSE)


@needs_a_compiler
def test_written_out_attention_is_built_too() -> None:
    """Its products have as many rows as the batch's longest row, which may be one."""
    files = build_files(attention="full")
    compiled, eager = AotRuntime(files.__getitem__), open_runtime(EAGER, files.__getitem__)
    for shape in ((1, 1), (3, 1), (4, 9)):
        ids = np.random.default_rng(0).integers(0, 40, shape)
        for mask in (ones(*shape), ids % 2, 0 * ids):
            np.testing.assert_allclose(compiled.run(ids, mask), eager.run(ids, mask), **CLOSE)


@needs_a_compiler
def test_arrays_of_another_order_are_read_right(good: dict[str, bytes], compiled: AotRuntime) -> None:
    ids = np.asfortranarray(np.arange(21).reshape(3, 7))
    mask = ones(3, 7)[:, ::-1]
    eager = open_runtime(EAGER, good.__getitem__)
    np.testing.assert_allclose(compiled.run(ids, mask), eager.run(ids.copy("C"), mask.copy()), **CLOSE)


@needs_a_compiler
def test_an_input_that_it_refuses_is_an_error_and_the_process_lives(compiled: AotRuntime) -> None:
    process = compiled._child
    with pytest.raises(BackendError, match="index out of bounds"):
        compiled.run(np.full((1, 2), 10**6), ones(1, 2))
    assert compiled.run(ones(1, 2), ones(1, 2)).shape == (1, 5)
    assert compiled._child is process


@needs_a_compiler
def test_a_process_that_ends_is_an_error_with_the_signal_and_the_next_input_is_answered(compiled: AotRuntime) -> None:
    before = compiled.run(ones(2, 3), ones(2, 3))
    for _ in range(2):
        # It stands still until it ends, so that it can't answer first.
        compiled._child.send_signal(signal.SIGSTOP)
        threading.Timer(0.2, compiled._child.kill).start()
        with pytest.raises(BackendError, match=r"^the process of the compiled model ended by SIGKILL"):
            compiled.run(ones(2, 2), ones(2, 2))
        # A fresh process, the same library.
        np.testing.assert_array_equal(compiled.run(ones(2, 3), ones(2, 3)), before)


@needs_a_compiler
def test_nothing_stays_when_it_goes(compiled: AotRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AotRuntime, "_start", lambda self: adopt(self, compiled._folder))
    other = AotRuntime(lambda _: b"")
    folder, process = other._folder, other._child
    assert folder.is_dir()
    assert process.poll() is None
    del other
    assert process.poll() == -signal.SIGKILL
    assert not folder.exists()


def adopt(runtime: AotRuntime, built: Path) -> None:
    """Start with a copy of a library that is built."""
    shutil.copy(built / "library.pt2", runtime._folder / "library.pt2")
    runtime._child = start(runtime._folder, built / "cache")
    runtime._children.append(runtime._child)


def start(folder: Path, cache: Path) -> "subprocess.Popen[bytes]":
    """Start with a cache; an empty one costs the ten compilations that ask the compiler for its vector instructions."""
    return subprocess.Popen(
        [sys.executable, "-m", "export.proof.runtimes.aot_child", str(folder)],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(folder), "TORCHINDUCTOR_CACHE_DIR": str(cache)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )


@needs_a_compiler
@pytest.mark.parametrize("built", [True, False], ids=["answering", "compiling"])
def test_the_process_ends_with_the_one_that_asks(
    tmp_path: Path, good: dict[str, bytes], compiled: AotRuntime, built: bool
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "model.pt2").write_bytes(good[PT2_FILE])
    if built:
        shutil.copy(compiled._folder / "library.pt2", folder)
    process = start(folder, compiled._folder / "cache" if built else folder / "cache")
    assert process.stdin is not None
    assert process.stdout is not None
    if built:
        assert read_frame(process.stdout) == READY
    else:
        wait_for(folder / "cache")
    # The system closes the pipe of a process that was killed.
    process.stdin.close()
    assert process.wait(timeout=20) == -signal.SIGKILL
    process.stdout.close()
    assert not folder.exists()


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert path.exists()


@needs_a_compiler
def test_a_file_that_can_not_be_loaded_is_an_error_in_its_own_words(good: dict[str, bytes]) -> None:
    with pytest.raises(BackendError, match=r"^model\.pt2 is damaged or not of Ferry's making: File is not a zip file$"):
        AotRuntime({**good, PT2_FILE: good[CONFIG_FILE]}.__getitem__).wait()


@needs_a_compiler
def test_a_compiler_that_fails_is_an_error(
    tmp_path: Path, good: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "compiler"
    # It says its version as the real one does, and compiles nothing.
    compiler.write_text(f"#!/bin/sh\n[ $# = 1 ] && exec {find_compiler()} $1\necho no space left >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    with pytest.raises(BackendError, match=r"^no space left$"):
        AotRuntime(good.__getitem__).wait()


@needs_a_compiler
def test_a_compiler_that_hangs_is_given_up(
    good: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    compiler = tmp_path / "c++"
    compiler.write_text(f"#!/bin/sh\n[ $# = 1 ] && exec {find_compiler()} $1\nexec sleep 1000\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setattr(aot, "_PATIENCE", 2.0)
    building = AotRuntime(good.__getitem__)
    with pytest.raises(BackendError, match=r"^the process of the compiled model gave no answer within 2 s$"):
        building.wait()


def test_without_a_compiler_it_is_told_what_is_missing(good: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert missing_for_aot() == ["there is no C++ compiler (no-such-compiler)"]
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", "")
    assert missing_for_aot() == ["there is no C++ compiler (g++, c++, clang++)"]
    with pytest.raises(BackendError, match=r"^AOTInductor can't be run here: there is no C\+\+ compiler"):
        AotRuntime(good.__getitem__)
