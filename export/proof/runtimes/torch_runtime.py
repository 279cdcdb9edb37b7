"""PyTorch as a backend: the eager model of config.json and model.safetensors, and the TorchScript file."""

import json
from contextlib import nullcontext

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from export.model import CONFIG_FILE, WEIGHTS_FILE, restore_model
from export.proof.precision import FLOAT32, PRECISIONS
from export.proof.runtimes.base import Array, BackendError, Ids, Read, Runtime, last_line
from export.torchscript import TORCHSCRIPT_FILE, load_torchscript

REFERENCE = "reference"
EAGER = "eager"
EAGER_MATH = "eager-math"
EAGER_HALF = "eager-float16"
EAGER_BFLOAT = "eager-bfloat16"

TORCH_ERRORS = (RuntimeError, ValueError, IndexError, TypeError)


class TorchRuntime(Runtime):
    """A torch module on the CPU, eager or scripted."""

    def __init__(self, name: str, module: torch.nn.Module, *, precision: str = FLOAT32, fused: bool = True) -> None:
        """Take a module in eval mode; `fused` is whether PyTorch may choose its fused attention kernels."""
        self.name = name
        self.precision = precision
        self.module = module
        self._fused = fused

    def run(self, input_ids: Ids, attention_mask: Ids) -> Array:
        """See `Runtime`."""
        kernels = nullcontext() if self._fused else sdpa_kernel(SDPBackend.MATH)
        try:
            with torch.inference_mode(), kernels:
                logits = self.module(torch.from_numpy(input_ids), torch.from_numpy(attention_mask))
        except TORCH_ERRORS as error:
            raise BackendError(last_line(error)) from error
        if not isinstance(logits, torch.Tensor):
            raise BackendError(f"the output must be one tensor; got {type(logits).__name__}")
        result: Array = logits.numpy()
        return result


def load_reference(read: Read) -> Runtime:
    """Load the reference: the eager model in float64.

    Raises:
        BackendError: if the configuration and the weights do not make a model.
    """
    return TorchRuntime(REFERENCE, load_eager_model(read).double())


def load_eager_model(read: Read) -> torch.nn.Module:
    """Build the model that config.json and model.safetensors describe, in eval mode.

    Raises:
        BackendError: if they do not make a model.
    """
    try:
        model: torch.nn.Module = restore_model(json.loads(read(CONFIG_FILE)), read(WEIGHTS_FILE))
    except ValueError as error:
        raise BackendError(str(error)) from error
    return model


def load_eager(name: str, precision: str, read: Read) -> Runtime:
    """Load the eager model in a precision that PRECISIONS gives a type."""
    dtype = PRECISIONS[precision].dtype
    assert dtype is not None
    return TorchRuntime(name, load_eager_model(read).to(dtype), precision=precision)


def load_math(read: Read) -> Runtime:
    """Load the eager model without fused attention kernels."""
    return TorchRuntime(EAGER_MATH, load_eager_model(read), fused=False)


def load_scripted(read: Read, *, frozen: bool) -> Runtime:
    """Load the TorchScript file, as it is or frozen after loading, as a service may.

    Raises:
        BackendError: if the file is damaged or can't be frozen.
    """
    try:
        module, _ = load_torchscript(read(TORCHSCRIPT_FILE))
        # Freezing wants eval mode; a file in training mode is to be seen, not mended.
        frozen_module = torch.jit.freeze(module) if frozen else module
    except TORCH_ERRORS as error:
        raise BackendError(last_line(error)) from error
    return TorchRuntime("torchscript-frozen" if frozen else "torchscript", frozen_module)
