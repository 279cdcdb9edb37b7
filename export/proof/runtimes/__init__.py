"""Everything that can answer for a model, behind one interface, and BACKENDS, a row for each.

Model files come as bytes, so that what is judged is what was hashed. Asked for CUDA where it can't run is an error that
says what is missing: nothing falls back.
"""

from collections.abc import Sequence
from functools import partial

from export.onnx_export import ONNX_FILE
from export.precision_files import ONNX_FP16_FILE, ONNX_INT8_FILE, OPTIONAL_FILES
from export.proof.placement import PROVIDERS
from export.proof.precision import FLOAT16, FLOAT32, INT8
from export.proof.runtimes.aot import AOT_INDUCTOR, AotRuntime
from export.proof.runtimes.base import (
    THREADS,
    Array,
    Backend,
    BackendError,
    Ids,
    Read,
    Runtime,
    one_torch_thread,
)
from export.proof.runtimes.compiler import missing_for_aot
from export.proof.runtimes.cuda import missing_for_cuda
from export.proof.runtimes.onnx_reference import OnnxReference
from export.proof.runtimes.onnx_runtime import LEVELS, load_onnx_runtime
from export.proof.runtimes.pt2 import PT2, load_exported
from export.proof.runtimes.torch_runtime import (
    EAGER,
    EAGER_BFLOAT,
    EAGER_HALF,
    REFERENCE,
    load_eager,
    load_eager_model,
    load_math,
    load_reference,
    load_scripted,
)
from export.pt2 import PT2_FILE
from export.torchscript import TORCHSCRIPT_FILE

__all__ = [
    "AOT_INDUCTOR",
    "BACKENDS",
    "EAGER",
    "EAGER_BFLOAT",
    "EAGER_HALF",
    "ONNX_FP16_FILE",
    "ONNX_INT8_FILE",
    "OPTIONAL_FILES",
    "PT2",
    "REFERENCE",
    "THREADS",
    "Array",
    "Backend",
    "BackendError",
    "Ids",
    "Read",
    "Runtime",
    "load_eager_model",
    "load_reference",
    "missing_for_aot",
    "missing_for_cuda",
    "one_torch_thread",
    "open_runtime",
    "select_backends",
]


def _onnxruntime(provider: str, level: str, *, threads: int = 1) -> Backend:
    name = f"onnxruntime-{provider}-{level}" + (f"-{threads}-threads" if threads > 1 else "")
    load = partial(load_onnx_runtime, name, file=ONNX_FILE, provider=provider, level=level, threads=threads)
    return Backend(name=name, provider=provider, file=ONNX_FILE, load=load)


def _onnxruntime_of(precision: str, file: str, provider: str) -> Backend:
    name = f"onnxruntime-{provider}-all-{precision}"
    load = partial(load_onnx_runtime, name, file=file, provider=provider, level="all", precision=precision)
    return Backend(name=name, provider=provider, file=file, load=load)


BACKENDS = (
    Backend(name=EAGER, provider="cpu", file=None, load=partial(load_eager, EAGER, FLOAT32)),
    Backend(name="eager-math", provider="cpu", file=None, load=load_math),
    Backend(name="torchscript", provider="cpu", file=TORCHSCRIPT_FILE, load=partial(load_scripted, frozen=False)),
    Backend(name="torchscript-frozen", provider="cpu", file=TORCHSCRIPT_FILE, load=partial(load_scripted, frozen=True)),
    *(_onnxruntime("cpu", level, threads=threads) for level in LEVELS for threads in (1, 2)),
    _onnxruntime("cuda", "all"),
    Backend(name="onnx-reference", provider="cpu", file=ONNX_FILE, load=OnnxReference),
    Backend(name=PT2, provider="cpu", file=PT2_FILE, load=load_exported),
    Backend(name=AOT_INDUCTOR, provider="cpu", file=PT2_FILE, load=AotRuntime, compiled=True),
    Backend(name=EAGER_HALF, provider="cpu", file=ONNX_FP16_FILE, load=partial(load_eager, EAGER_HALF, FLOAT16)),
    *(_onnxruntime_of(FLOAT16, ONNX_FP16_FILE, provider) for provider in PROVIDERS),
    *(_onnxruntime_of(INT8, ONNX_INT8_FILE, provider) for provider in PROVIDERS),
)


def open_runtime(name: str, read: Read) -> Runtime:
    """Load a backend of the table from the files it needs.

    Args:
        name: the backend's name.
        read: gives the bytes of a file by its name.

    Raises:
        ValueError: if there is no such backend.
        BackendError: if the backend can't load its file.
    """
    for backend in BACKENDS:
        if backend.name == name:
            runtime = backend.load(read)
            runtime.wait()
            return runtime
    raise ValueError(f"the backend must be one of {', '.join(backend.name for backend in BACKENDS)}; got {name}.")


def select_backends(providers: Sequence[str], *, optional: Sequence[str] = ()) -> list[Backend]:
    """Return the rows of the table for the providers asked for; the CPU is always among them.

    Args:
        providers: keys of PROVIDERS.
        optional: which of OPTIONAL_FILES there are.

    Raises:
        ValueError: if a provider is unknown, or CUDA is asked for and can't run; the message says what is missing.
    """
    for provider in providers:
        if provider not in PROVIDERS:
            raise ValueError(f"the provider must be one of {', '.join(PROVIDERS)}; got {provider}.")
    if "cuda" in providers:
        missing = missing_for_cuda()
        if missing:
            raise ValueError(
                f"the provider cuda was asked for and can't run here: {'; '.join(missing)}. "
                "Supply what is missing, or ask for cpu."
            )
    absent = set(OPTIONAL_FILES) - set(optional)
    return [backend for backend in BACKENDS if backend.provider in {"cpu", *providers} and backend.file not in absent]
