"""Ours: the encoder of the work with random weights, exported as every model of Ferry's is, in each precision."""

import importlib
import logging
import warnings
from typing import Any

import torch
from torch import nn

from benchmarks.inference.work import ENCODER, LABELS, Batch, make_batch
from export.capture import capture
from export.contract import Limits
from export.onnx_export import export_onnx
from models.heads import TextClassifier

FLOAT32 = "ferry"
# How the rows in integers are named: after the form of export/quantization.
INT8 = "ferry-int8"
QUANTIZATION = "export.quantization"
_CALIBRATION = ((8, 128), (32, 64), (16, 256))


def build_model() -> nn.Module:
    """Build the classifier; as in a trained one, no bias is zero, and no two parameters are equal."""
    torch.manual_seed(0)
    model = TextClassifier(ENCODER, pooling="first", head="mlp", num_labels=LABELS)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.02 * torch.randn(parameter.shape))
    return model.eval().requires_grad_(False)


def export(model: nn.Module) -> bytes:
    """Export a model of the work's encoder."""
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    limits = Limits(max_length=ENCODER.max_len, vocab_size=ENCODER.vocab_size)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own; the tests of the exporter say which
        return export_onnx(capture(model, limits), {})


def quantise(model: bytes) -> tuple[dict[str, bytes], list[str]]:
    """Write a model in each form of integers, and say what was left out and why."""
    try:
        quantization: Any = importlib.import_module(QUANTIZATION)
    except ModuleNotFoundError as error:
        if error.name != QUANTIZATION:
            raise
        return {}, [f"{INT8}: {QUANTIZATION} is not in this version"]
    batches = [(batch.ids, batch.mask) for batch in calibration_batches()]
    return {f"{INT8}-{form}": quantization.quantize(model, batches, form=form) for form in quantization.FORMS}, []


def calibration_batches() -> list[Batch]:
    """Rows as they will come: of the work's shapes, half full."""
    return [make_batch(*size, "half") for size in _CALIBRATION]
