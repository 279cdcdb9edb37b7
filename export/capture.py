"""What ONNX and .pt2 are both written from: a model captured by torch.export, with dynamic batch and sequence."""

import torch
from torch.export import Dim, ExportedProgram

from export.contract import BATCH_AXIS, SEQUENCE_AXIS, Limits
from export.example import choose_example

# What a node needs: the type of its value, and the module that it came from. Other notes hold source paths.
_NOTES = {"val", "nn_module_stack"}


def capture(model: torch.nn.Module, limits: Limits) -> ExportedProgram:
    """Capture a model in eval mode as a graph of ATen operators that holds no source path.

    Raises:
        ValueError: if the model is in training mode.
    """
    if model.training:
        raise ValueError("a model is exported in eval mode; got one in training mode. Call .eval() first.")
    example = choose_example(model, limits).inputs(limits)
    axes = {0: Dim(BATCH_AXIS, min=1), 1: Dim(SEQUENCE_AXIS, min=1, max=limits.max_length)}
    program = torch.export.export(model, example, dynamic_shapes=(axes, axes))
    for node in program.graph.nodes:
        for note in node.meta.keys() - _NOTES:
            del node.meta[note]
    return program
