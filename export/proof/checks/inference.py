"""Nothing of training and nothing of a machine: no dropout, no chance, no device that was baked in."""

import pickletools
import re
from collections.abc import Iterator

import onnx

from export.onnx_export import ONNX_FILE
from export.proof.checks.files import Files, messages
from export.proof.checks.onnx_graph import describe
from export.proof.checks.script_graph import arguments_of, walk
from export.torchscript import TORCHSCRIPT_FILE

_RANDOM_OPERATORS = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)
_RANDOM_CALLS = re.compile(
    r"aten::(rand|bernoulli|multinomial|normal|uniform|exponential|poisson|rrelu|(\w+_)?dropout_)"
)
_DEVICE = re.compile(r"(cpu|cuda|mps|xpu|xla|meta|hpu)(:\d+)?")


def check_inference_mode(files: Files) -> list[str]:
    problems = []
    for node in messages(files.onnx, onnx.NodeProto):
        training = any(attribute.name == "training_mode" and attribute.i for attribute in node.attribute)
        if node.op_type == "Dropout" or node.op_type in _RANDOM_OPERATORS or training:
            problems.append(f"{ONNX_FILE} holds the training-mode node {describe(node)}")
    for name, module in files.torchscript.named_modules():
        if module.training:
            problems.append(f"{TORCHSCRIPT_FILE} is in training mode at {name or 'its root'}")
    return problems + list(_check_script_calls(files))


def _check_script_calls(files: Files) -> Iterator[str]:
    """Look for calls that drop or draw, whatever the modules say."""
    script = files.script
    for node in walk(script.whole):
        kind, arguments = node.kind(), arguments_of(node)
        if _RANDOM_CALLS.match(kind):
            yield f"{TORCHSCRIPT_FILE} calls {kind}, which draws at random"
        for name in ("train", "training"):
            if name in arguments and script.constant(arguments[name]) is not False:
                yield f"{TORCHSCRIPT_FILE} calls {kind} with {name} {script.constant(arguments[name])}"


def check_devices(files: Files) -> list[str]:
    """Look for devices: a scripted model asks its inputs for theirs, and its weights are stored for the CPU."""
    problems = []
    for node in walk(files.script.whole):
        if node.kind() != "prim::Constant":
            continue
        value = node.output()
        told = str(value.toIValue())
        if value.type().kind() == "DeviceObjType" or _DEVICE.fullmatch(told):
            problems.append(f"{TORCHSCRIPT_FILE} has the device {told} baked in")
    for name, data in files.archive:
        if name.endswith(".pkl"):
            texts = {text for _, text, _ in pickletools.genops(data) if isinstance(text, str)}
            problems += [
                f"{TORCHSCRIPT_FILE}, {name}: stores a tensor for the device {text}"
                for text in sorted(texts - {"cpu"})
                if _DEVICE.fullmatch(text)
            ]
    return problems
