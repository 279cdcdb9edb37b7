"""The table of backends: names, failures, and what is said where CUDA can't run."""

import ctypes
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from export.proof import runtimes
from export.proof.cases import Case
from export.proof.parity import is_asked
from export.proof.runtimes import (
    BACKENDS,
    OPTIONAL_FILES,
    BackendError,
    load_reference,
    missing_for_aot,
    open_runtime,
    select_backends,
)

CPU_ROWS = [backend for backend in BACKENDS if backend.provider == "cpu" and backend.file not in OPTIONAL_FILES]
CPU_BACKENDS = [backend.name for backend in CPU_ROWS]
# Those that are compiled take half a minute to open; they have tests of their own.
OPENED = [backend.name for backend in CPU_ROWS if not backend.compiled]


@pytest.mark.parametrize("name", OPENED)
def test_a_backend_answers_in_float32_and_says_its_name(name: str, good: dict[str, bytes]) -> None:
    runtime = open_runtime(name, good.__getitem__)
    logits = runtime.run(np.ones((2, 4), np.int64), np.ones((2, 4), np.int64))
    assert runtime.name == name
    assert logits.shape == (2, 5)
    assert logits.dtype == np.float32


def test_the_reference_computes_in_float64(good: dict[str, bytes]) -> None:
    ids = np.ones((1, 3), np.int64)
    assert load_reference(good.__getitem__).run(ids, ids).dtype == np.float64


@pytest.mark.parametrize("name", [name for name in CPU_BACKENDS if name.startswith("onnxruntime")])
def test_every_node_of_a_cpu_session_runs_on_the_cpu(name: str, good: dict[str, bytes]) -> None:
    placement = open_runtime(name, good.__getitem__).placement
    assert placement is not None
    assert placement.provider == "CPUExecutionProvider"
    assert placement.faults == ()
    # Integer nodes are told from float ones, or the rule for CUDA would refuse shape arithmetic.
    assert 20 < placement.float_nodes < placement.nodes - 20


@pytest.mark.parametrize("name", OPENED)
def test_an_input_that_a_backend_can_not_run_is_a_backend_error(name: str, good: dict[str, bytes]) -> None:
    runtime = open_runtime(name, good.__getitem__)
    with pytest.raises(BackendError):
        runtime.run(np.full((1, 2), 10**6), np.ones((1, 2), np.int64))


def test_an_unknown_backend_or_provider_is_refused_by_name(good: dict[str, bytes]) -> None:
    with pytest.raises(ValueError, match=r"onnxruntime-cpu-off.*got tensorrt"):
        open_runtime("tensorrt", good.__getitem__)
    with pytest.raises(ValueError, match="one of cpu, cuda; got tpu"):
        select_backends(["cpu", "tpu"])


def test_the_cpu_is_always_among_the_backends(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [backend.name for backend in select_backends(["cpu"])] == CPU_BACKENDS
    monkeypatch.setattr(runtimes, "missing_for_cuda", list)
    with_cuda = [backend.name for backend in select_backends(["cuda"])]
    assert [name for name in with_cuda if name in CPU_BACKENDS] == CPU_BACKENDS
    assert set(with_cuda) - set(CPU_BACKENDS) == {"onnxruntime-cuda-all"}


def test_a_backend_that_can_not_run_long_rows_is_not_asked_for_them(good: dict[str, bytes]) -> None:
    reference = open_runtime("onnx-reference", good.__getitem__)
    for length, asked in ((64, True), (65, False)):
        ids = np.ones((1, length), np.int64)
        assert is_asked(reference, Case(name="case", input_ids=ids, attention_mask=ids)) is asked


def test_two_threads_are_two_threads() -> None:
    names = [backend.name for backend in BACKENDS]
    assert {f"onnxruntime-cpu-{level}-2-threads" for level in ("off", "basic", "all")} <= set(names)


def test_without_a_compiler_nothing_is_built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert missing_for_aot() == ["there is no C++ compiler (g++, c++, clang++)"]
    compiler = tmp_path / "c++"
    compiler.touch(mode=0o755)
    assert missing_for_aot() == []
    monkeypatch.setenv("CXX", "icpx")
    assert missing_for_aot() == ["there is no C++ compiler (icpx)"]


class Driver:
    """Stands for NVIDIA's driver with so many devices."""

    def __init__(self, devices: int) -> None:
        self.devices = devices

    def cuInit(self, _: int) -> int:  # noqa: N802
        return 0

    def cuDeviceGetCount(self, count: Any) -> int:  # noqa: N802
        count._obj.value = self.devices
        return 0


def pretend(monkeypatch: pytest.MonkeyPatch, *, providers: list[str], libraries: dict[str, Any]) -> None:
    """Let libraries load (a value), or fail with a message (a string)."""

    def load(path: str, mode: int = 0) -> Any:
        found = libraries.get(path.rpartition("/")[2], "no such file")
        if isinstance(found, str):
            raise OSError(found)
        return found

    monkeypatch.setattr(ort, "get_available_providers", lambda: providers)
    monkeypatch.setattr(ctypes, "CDLL", load)


SHARED, CUDA = "libonnxruntime_providers_shared.so", "libonnxruntime_providers_cuda.so"
BOTH = ["CUDAExecutionProvider", "CPUExecutionProvider"]


@pytest.mark.parametrize(
    ("providers", "libraries", "missing"),
    [
        (BOTH, {SHARED: 1, CUDA: 1, "libcuda.so.1": Driver(1)}, []),
        (BOTH[1:], {"libcuda.so.1": Driver(1)}, ["built without CUDA"]),
        (BOTH, {SHARED: 1, CUDA: "libcudnn.so.9: cannot open", "libcuda.so.1": Driver(1)}, ["libcudnn.so.9"]),
        (BOTH, {SHARED: 1, CUDA: 1}, ["no NVIDIA driver"]),
        (BOTH, {SHARED: 1, CUDA: 1, "libcuda.so.1": Driver(0)}, ["no device"]),
        (BOTH, {SHARED: 1, CUDA: "libcublas.so.12: cannot open"}, ["libcublas.so.12", "no NVIDIA driver"]),
    ],
    ids=["nothing", "wheel", "library", "driver", "device", "two things"],
)
def test_what_cuda_lacks_is_named(
    monkeypatch: pytest.MonkeyPatch, providers: list[str], libraries: dict[str, Any], missing: list[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    pretend(monkeypatch, providers=providers, libraries=libraries)
    found = runtimes.missing_for_cuda()
    assert len(found) == len(missing)
    assert all(word in sentence for word, sentence in zip(missing, found, strict=True))
    if missing:
        with pytest.raises(ValueError, match=f"can't run here.*{missing[0]}"):
            select_backends(["cuda"])
