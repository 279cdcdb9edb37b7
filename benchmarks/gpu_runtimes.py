"""What is judged on a GPU: eager PyTorch in three precisions, the TorchScript file, the ONNX file at each optimisation.

Everything takes the device as an argument, so that a machine without a GPU can test it on its CPU.
"""

import copy
from contextlib import nullcontext

import onnxruntime as ort
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from export.errors import FerryError
from export.onnx_export import ONNX_FILE
from export.proof.placement import CPU_PROVIDER, PROVIDERS
from export.proof.precision import BFLOAT16, FLOAT16, FLOAT32, PRECISIONS
from export.proof.runtimes import EAGER, EAGER_BFLOAT, EAGER_HALF, Array, BackendError, Ids, Read, Runtime
from export.proof.runtimes.base import last_line
from export.proof.runtimes.onnx_runtime import LEVELS, load_onnx_runtime
from export.proof.runtimes.torch_runtime import TORCH_ERRORS, load_eager_model
from export.torchscript import TORCHSCRIPT_FILE, load_torchscript

ERRORS_ONLY = 3
# The eager models on the CPU from which the limits follow: a device is never judged by itself.
YARDSTICKS = {FLOAT32: EAGER, FLOAT16: EAGER_HALF, BFLOAT16: EAGER_BFLOAT}


class DeviceRuntime(Runtime):
    """A torch module that was moved to a device; answers come back as float32."""

    def __init__(
        self, name: str, module: torch.nn.Module, device: str, *, precision: str = FLOAT32, fused: bool = True
    ) -> None:
        """Move a module in eval mode; `fused` is whether PyTorch may choose its fused attention kernels.

        Raises:
            BackendError: if a part of the module stays behind, as constants of a frozen or traced one do.
        """
        self.name = name
        self.precision = precision
        self._device = device
        self._fused = fused
        self._module = module.to(device, PRECISIONS[precision].dtype)
        places = {tensor.device.type for tensor in (*self._module.parameters(), *self._module.buffers())}
        if places != {torch.device(device).type}:
            raise BackendError(f"after .to({device!r}) its tensors are on {', '.join(sorted(places)) or 'no device'}")

    def run(self, input_ids: Ids, attention_mask: Ids) -> Array:
        """See `Runtime`."""
        kernels = nullcontext() if self._fused else sdpa_kernel(SDPBackend.MATH)
        try:
            with torch.inference_mode(), kernels:
                logits = self._module(
                    torch.from_numpy(input_ids).to(self._device), torch.from_numpy(attention_mask).to(self._device)
                )
                result: Array = logits.float().cpu().numpy()
        except TORCH_ERRORS as error:
            raise BackendError(last_line(error)) from error
        return result


def load_yardsticks(read: Read) -> list[Runtime]:
    """Load the eager models on the CPU, one a precision."""
    return [
        DeviceRuntime(name, load_eager_model(read), "cpu", precision=precision)
        for precision, name in YARDSTICKS.items()
    ]


def load_on_device(read: Read, device: str) -> list[Runtime]:
    """Load everything that is judged on a device.

    Args:
        read: gives the bytes of a model's files by name.
        device: a key of PROVIDERS, which PyTorch knows by the same word.

    Raises:
        FerryError: if something can't be loaded there.
    """
    eager = load_eager_model(read)
    try:
        scripted, _ = load_torchscript(read(TORCHSCRIPT_FILE))
    except ValueError as error:
        raise FerryError(str(error)) from error
    return [
        DeviceRuntime(f"eager on {device}", copy.deepcopy(eager), device),
        DeviceRuntime(f"eager-math on {device}", copy.deepcopy(eager), device, fused=False),
        *(
            DeviceRuntime(f"eager-{precision} on {device}", copy.deepcopy(eager), device, precision=precision)
            for precision in (FLOAT16, BFLOAT16)
        ),
        DeviceRuntime(f"torchscript on {device}", scripted, device),
        *(
            load_onnx_runtime(f"onnxruntime-{level} on {device}", read, file=ONNX_FILE, provider=device, level=level)
            for level in LEVELS
        ),
    ]


def open_session(model: bytes, device: str, *, tf32: bool = False) -> ort.InferenceSession:
    """Open a plain session on a device, at the optimisation that users get."""
    options = ort.SessionOptions()
    options.log_severity_level = ERRORS_ONLY
    if device == "cpu":
        return ort.InferenceSession(model, options, providers=[CPU_PROVIDER])
    # The CPU is there for shape arithmetic.
    providers = [(PROVIDERS[device], {"use_tf32": str(int(tf32))}), (CPU_PROVIDER, {})]
    return ort.InferenceSession(model, options, providers=providers)


def missing_for_torch() -> list[str]:
    """Say what PyTorch lacks to run on CUDA here; empty if it lacks nothing."""
    if torch.version.cuda is None:
        return [f"torch {torch.__version__} was built without CUDA (install the build for your CUDA version)"]
    if not torch.cuda.is_available():
        return [f"torch {torch.__version__} finds no device that its CUDA {torch.version.cuda} can use"]
    return []
