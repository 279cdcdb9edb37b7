"""Copies of a model's files whose weight matrices are multiplied by a factor, made from the shipped bytes.

A factor that is a power of two changes no digit of a weight, so what differs between backends is what they compute.
"""

import numpy as np
import onnx
import torch
from onnx import numpy_helper

from export.model import WEIGHTS_FILE, read_weights
from export.onnx_export import ONNX_FILE, read_onnx
from export.proof.runtimes import EAGER, PT2, REFERENCE, BackendError, Read, Runtime
from export.proof.runtimes.onnx_runtime import LEVELS, OnnxRuntime
from export.proof.runtimes.torch_runtime import TorchRuntime, load_eager_model
from export.pt2 import PT2_FILE, load_pt2
from export.torchscript import TORCHSCRIPT_FILE, load_torchscript

# Twice and eight times: attention becomes sharp, then a choice of one.
SCALES = (2.0, 8.0)


def load_scaled(read: Read, scale: float) -> tuple[Runtime, list[Runtime]]:
    """Load the reference, and the backends whose files can be scaled, with every weight matrix times `scale`.

    Raises:
        BackendError: if a file can't be loaded.
    """
    try:
        scripted, _ = load_torchscript(read(TORCHSCRIPT_FILE))
        exported, _ = load_pt2(read(PT2_FILE))
        model = _scale_onnx(read, scale)
    except ValueError as error:
        raise BackendError(str(error)) from error
    reference = TorchRuntime(REFERENCE, _scale_module(load_eager_model(read), scale).double())
    return reference, [
        TorchRuntime(EAGER, _scale_module(load_eager_model(read), scale)),
        TorchRuntime("torchscript", _scale_module(scripted, scale)),
        TorchRuntime(PT2, _scale_module(exported, scale)),
        *(
            OnnxRuntime(f"onnxruntime-cpu-{level}", model, provider="cpu", level=LEVELS[level])
            for level in ("off", "all")
        ),
    ]


def _scale_module(module: torch.nn.Module, scale: float) -> torch.nn.Module:
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.dim() > 1:
                parameter.mul_(scale)
    return module


def _scale_onnx(read: Read, scale: float) -> bytes:
    """Multiply every matrix that holds the values of a weight matrix, as it is or transposed."""
    matrices = {
        values.tobytes()
        for weight in read_weights(read(WEIGHTS_FILE)).values()
        if weight.dim() > 1
        for values in (weight.numpy(), np.ascontiguousarray(weight.numpy().T))
    }
    model = read_onnx(read(ONNX_FILE))
    for tensor in _tensors(model.graph):
        if len(tensor.dims) > 1 and tensor.data_type == onnx.TensorProto.FLOAT:
            values = np.asarray(numpy_helper.to_array(tensor))
            if values.tobytes() in matrices:
                tensor.CopyFrom(numpy_helper.from_array(values * np.float32(scale), tensor.name))
    data: bytes = model.SerializeToString()
    return data


def _tensors(graph: onnx.GraphProto) -> list[onnx.TensorProto]:
    constants = [attribute.t for node in graph.node for attribute in node.attribute if attribute.HasField("t")]
    return [*graph.initializer, *constants]
