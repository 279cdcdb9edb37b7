"""What may run for ever is refused before any of it runs: a loop in TorchScript's code, or in an ONNX graph."""

import io
import zipfile

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from export.onnx_export import read_onnx
from export.proof.runtimes import BackendError, open_runtime
from export.torchscript import TORCHSCRIPT_FILE, load_torchscript


class Waits(nn.Module):
    """Never answers."""

    def forward(self, x: Tensor) -> Tensor:
        while True:
            x = x + 1
        return x


class Counts(nn.Module):
    """Answers in time, yet by a loop."""

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            x = x + 1
        return x


class CountsOnLoading(nn.Module):
    """Runs a loop while it is loaded; one that ends, so that a guard that is gone does not hang the tests."""

    def forward(self, x: Tensor) -> Tensor:
        return x

    @torch.jit.export
    def __getstate__(self) -> tuple[bool]:
        return (self.training,)

    @torch.jit.export
    def __setstate__(self, state: tuple[bool]) -> None:
        for _ in range(3):
            self.training = state[0]


class Answers(nn.Module):
    """Goes through its modules, which scripting unrolls."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList([nn.Identity(), nn.ReLU()])

    def forward(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x


def scripted(model: nn.Module) -> bytes:
    buffer = io.BytesIO()
    torch.jit.save(torch.jit.script(model.eval()), buffer, _extra_files={"ferry.json": "{}"})
    return buffer.getvalue()


@pytest.mark.parametrize("model", [Waits, Counts, CountsOnLoading])
def test_torchscript_with_a_loop_is_refused(model: type[nn.Module]) -> None:
    data = scripted(model())
    with pytest.raises(ValueError, match=r"model.pt holds a loop \(.*/code/.*\.py\), which may run for ever"):
        load_torchscript(data)
    with pytest.raises(BackendError, match="which may run for ever"):
        open_runtime("torchscript", {TORCHSCRIPT_FILE: data}.__getitem__)


def test_torchscript_without_a_loop_is_loaded() -> None:
    module, metadata = load_torchscript(scripted(Answers()))
    assert metadata == {}
    assert module(torch.tensor([-1.0, 2.0])).tolist() == [0.0, 2.0]


def test_more_code_than_any_model_has_is_not_unpacked() -> None:
    buffer = io.BytesIO(scripted(Answers()))
    with zipfile.ZipFile(buffer, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/code/__torch__/more.py", b"#" * (2**24 + 1))
    with pytest.raises(ValueError, match=r"more code than any model has \(archive/code/__torch__/more.py\)"):
        load_torchscript(buffer.getvalue())


def loop() -> onnx.NodeProto:
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Identity", ["goes_on"], ["will"]), helper.make_node("Identity", ["taken"], ["given"])],
        "body",
        [
            value("trip", TensorProto.INT64, []),
            value("goes_on", TensorProto.BOOL, []),
            value("taken", TensorProto.FLOAT, None),
        ],
        [value("will", TensorProto.BOOL, []), value("given", TensorProto.FLOAT, None)],
    )
    return helper.make_node("Loop", ["trips", "", "x"], ["y"], body=body, name="spin")


def in_graph(node: onnx.NodeProto, functions: list[onnx.FunctionProto]) -> bytes:
    value = helper.make_tensor_value_info
    trips = numpy_helper.from_array(np.array(2**62), "trips")
    graph = helper.make_graph(
        [node], "graph", [value("x", TensorProto.FLOAT, [1])], [value("y", TensorProto.FLOAT, [1])], [trips]
    )
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid("own", 1)]
    data: bytes = helper.make_model(graph, opset_imports=opsets, functions=functions).SerializeToString()
    return data


def in_a_branch() -> bytes:
    outer = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    branch = helper.make_graph([loop()], "branch", [], [outer])
    return in_graph(helper.make_node("If", ["x"], ["y"], then_branch=branch, else_branch=branch), [])


def in_a_function() -> bytes:
    body = helper.make_function("own", "Spin", ["x", "trips"], ["y"], [loop()], [helper.make_opsetid("", 23)])
    return in_graph(helper.make_node("Spin", ["x", "trips"], ["y"], domain="own"), [body])


@pytest.mark.parametrize("make", [lambda: in_graph(loop(), []), in_a_branch, in_a_function])
def test_onnx_with_a_loop_is_refused(make) -> None:
    data = make()
    with pytest.raises(ValueError, match=r"model.onnx holds a loop \(spin\), which may run for ever"):
        read_onnx(data)
    for backend in ("onnxruntime-cpu-off", "onnxruntime-cpu-all", "onnx-reference"):
        with pytest.raises(BackendError, match="which may run for ever"):
            open_runtime(backend, {"model.onnx": data}.__getitem__)
