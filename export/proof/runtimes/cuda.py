"""What ONNX Runtime lacks to run on CUDA here: each missing part has its sentence."""

import contextlib
import ctypes
import io
import sys
from pathlib import Path

import onnxruntime as ort
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors

from export.proof.placement import PROVIDERS


def missing_for_cuda() -> list[str]:
    """Say what ONNX Runtime lacks to run on CUDA here; empty if it lacks nothing."""
    missing = []
    if PROVIDERS["cuda"] not in ort.get_available_providers():
        missing.append(f"onnxruntime {ort.__version__} was built without CUDA (install onnxruntime-gpu)")
    else:
        missing += _missing_provider_library()
    missing += _missing_device()
    return missing


def _missing_provider_library() -> list[str]:
    # Finds the CUDA libraries of NVIDIA's wheels; it prints what it does not find, and the loader below says it better.
    with contextlib.redirect_stdout(io.StringIO()):
        ort.preload_dlls()
    folder = Path(ort_errors.__file__).parent
    prefix, suffix = ("", ".dll") if sys.platform == "win32" else ("lib", ".so")
    for name in ("onnxruntime_providers_shared", "onnxruntime_providers_cuda"):
        library = f"{prefix}{name}{suffix}"
        try:
            ctypes.CDLL(str(folder / library), mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            return [f"ONNX Runtime's {library} can't be loaded ({str(error).replace(str(folder), '').lstrip('/')})"]
    return []


def _missing_device() -> list[str]:
    library = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        driver = ctypes.CDLL(library)
    except OSError:
        return [f"there is no NVIDIA driver ({library} can't be loaded)"]
    status = driver.cuInit(0)
    count = ctypes.c_int(0)
    if status == 0:
        status = driver.cuDeviceGetCount(ctypes.byref(count))
    if status != 0 or count.value == 0:
        return [f"the NVIDIA driver finds no device (status {status}, {count.value} devices)"]
    return []
