"""A whole model, quantised: against PyTorch's with every Linear and table rounded, and by the laws it must keep."""

import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper
from torch import Tensor, nn

from export.contract import ONNX_METADATA_KEY
from export.model import CONFIG_FILE, model_limits
from export.onnx_export import ONNX_FILE
from export.proof.cases import build_grid
from export.proof.precision import INT8
from export.proof.runtimes.onnx_runtime import LEVELS, OnnxRuntime
from export.quantization import FORMS, quantize, requantize
from tests.export.proof.subjects import build_files, eager_model
from tests.export.test_rewrite import optimised
from tests.sabotage.tools import edit_onnx

ROOT = Path(__file__).resolve().parents[3]
# Four Linears in the layer and two in the head; token and position tables.
# Queries, keys and values are a Linear each.
LINEARS, TABLES = 8, 2
Batches = list[tuple[np.ndarray, np.ndarray]]


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    return build_files()


@pytest.fixture(scope="module")
def batches(files: dict[str, bytes]) -> Batches:
    limits = model_limits(json.loads(files[CONFIG_FILE]))
    rng = np.random.default_rng(0)
    ids = [rng.integers(0, limits.vocab_size, (8, length)) for length in (3, 9, limits.max_length)]
    return [(own, np.ones_like(own)) for own in ids]


@pytest.fixture(scope="module", params=FORMS)
def quantized(request: pytest.FixtureRequest, files: dict[str, bytes], batches: Batches) -> tuple[str, bytes]:
    return request.param, quantize(files[ONNX_FILE], batches, form=request.param)


def metadata_of(model: bytes) -> dict:
    (entry,) = onnx.load_from_string(model).metadata_props
    assert entry.key == ONNX_METADATA_KEY
    return json.loads(entry.value)


def rounded(matrix: Tensor, levels: int) -> Tensor:
    """Each row in steps of its largest size / levels."""
    step = (matrix.double().abs().amax(1, keepdim=True) / levels).float().double()
    return (matrix.double() / step).round() * step


class Rounded(nn.Module):
    """A Linear or a table in float64 whose numbers went through integers and back; written without export/."""

    def __init__(self, inner: nn.Module, ends: list[float] | None) -> None:
        super().__init__()
        levels = 127 if isinstance(inner, nn.Embedding) else 64
        inner.weight = nn.Parameter(rounded(inner.weight, levels), requires_grad=False)
        self.inner, self.ends = inner, ends

    def forward(self, x: Tensor) -> Tensor:
        if isinstance(self.inner, nn.Embedding):
            return self.inner(x)
        if self.ends is None:
            step = (x.abs().amax(-1, keepdim=True) / 127).clamp(min=1e-30)
            return self.inner((x / step).round() * step)
        low, high = min(self.ends[0], 0.0), max(self.ends[1], 0.0)
        step = float(np.float32((high - low) / 255))
        zero = round(-low / step)
        return self.inner(((x / step).round() + zero).clamp(0, 255).sub(zero) * step)


def rounded_model(files: dict[str, bytes], quantization: dict) -> nn.Module:
    model = eager_model(files).double()
    ranges = {name.removesuffix("/MatMul"): ends for name, ends in quantization.get("ranges", {}).items()}
    for table in model.buffers():
        table.copy_(rounded(table, 127))
    for path, module in list(model.named_modules()):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            parent, _, name = path.rpartition(".")
            setattr(model.get_submodule(parent), name, Rounded(module, ranges.get(path)))
    return model


def test_it_is_the_model_with_every_linear_and_table_rounded(
    files: dict[str, bytes], quantized: tuple[str, bytes]
) -> None:
    _, model = quantized
    oracle = rounded_model(files, metadata_of(model)["quantization"])
    runtime = OnnxRuntime("int8", model, provider="cpu", level=LEVELS["all"], precision=INT8)
    limits = model_limits(json.loads(files[CONFIG_FILE]))
    errors, moved = [], []
    for case in build_grid(limits)[::5]:
        got = runtime.run(case.input_ids, case.attention_mask)
        ids, mask = torch.from_numpy(case.input_ids), torch.from_numpy(case.attention_mask)
        with torch.inference_mode():
            wanted, plain = oracle(ids, mask).numpy(), eager_model(files)(ids, mask).numpy()
        errors += np.abs(got - wanted).max(axis=-1).reshape(-1).tolist()
        moved += np.abs(wanted - plain).max(axis=-1).reshape(-1).tolist()
    # Where float32 and float64 round one value to two levels, an answer differs by what a level is worth.
    assert np.median(errors) < 2e-5
    assert max(errors) < np.median(moved)


def test_every_linear_and_table_is_in_integers_after_onnxruntimes_own_optimisations(
    quantized: tuple[str, bytes], tmp_path: Path
) -> None:
    form, model = quantized
    got = Counter(node.op_type for node in optimised(model, tmp_path / "optimised.onnx").graph.node)
    assert got[FORMS[form].operator] == LINEARS
    assert got["MatMul"] == got["Gemm"] == got["FusedMatMul"] == 0
    assert got["DequantizeLinear"] == TABLES
    assert got["QuantizeLinear"] == (LINEARS - 2 if FORMS[form].calibrated else 0)


def test_nothing_is_left_of_the_float_weights(files: dict[str, bytes], quantized: tuple[str, bytes]) -> None:
    form, model = quantized
    graph = onnx.load_from_string(model).graph
    matrices = {tensor.name: tensor.data_type for tensor in graph.initializer if len(tensor.dims) == 2}
    assert set(matrices.values()) == {onnx.TensorProto.INT8}
    assert len(matrices) == LINEARS + TABLES
    vectors = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    for tensor in onnx.load_from_string(files[ONNX_FILE]).graph.initializer:
        if len(tensor.dims) == 1 and tensor.data_type == onnx.TensorProto.FLOAT:
            np.testing.assert_array_equal(vectors[tensor.name], numpy_helper.to_array(tensor))
    domains = {entry.domain for entry in onnx.load_from_string(model).opset_import}
    assert domains == ({"", "com.microsoft"} if form == "static" else {""})


def test_the_metadata_is_that_of_the_float_file_and_tells_of_the_quantisation(
    files: dict[str, bytes], batches: Batches, quantized: tuple[str, bytes]
) -> None:
    form, model = quantized
    told = metadata_of(model)
    quantization = told.pop("quantization")
    assert told.pop("precision") == "int8"
    assert told == metadata_of(files[ONNX_FILE])
    assert quantization["form"] == form
    if not FORMS[form].calibrated:
        assert quantization == {"form": form}
        return
    digest = hashlib.sha256()
    for ids, mask in batches:
        digest.update(repr(ids.shape).encode() + ids.tobytes() + mask.tobytes())
    assert quantization["calibration"] == {"rows": 24, "sha256": digest.hexdigest()}
    assert len(quantization["ranges"]) == LINEARS
    # After LayerNorm values lie about zero; GELU's are above -0.17.
    low, high = quantization["ranges"]["encoder.blocks.0.feed_forward.down/MatMul"]
    assert -0.1701 <= low < 0 < high


def test_it_follows_from_the_float_file_and_what_it_tells(
    files: dict[str, bytes], quantized: tuple[str, bytes]
) -> None:
    _, model = quantized
    assert requantize(files[ONNX_FILE], metadata_of(model)["quantization"]) == model


def test_what_else_is_told_is_not_repeated(files: dict[str, bytes], batches: Batches) -> None:
    model = quantize(files[ONNX_FILE], batches, form="static")
    told = metadata_of(model)["quantization"]
    told["note"] = told["calibration"]["by"] = "somebody"
    assert requantize(files[ONNX_FILE], told) == model


TOLD = {"form": "static", "calibration": {"rows": 1, "sha256": "0" * 64}, "ranges": {}}


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({}, "'form'"),
        ({"form": "int4"}, "no form 'int4'"),
        ({**TOLD, "ranges": {"other/MatMul": [0, 1]}}, "they differ in .*other/MatMul"),
        ({**TOLD, "ranges": {"x": [1, 0]}}, "a range must be finite"),
        ({**TOLD, "ranges": {"x": [1]}}, "in what the metadata tells"),
        ({**TOLD, "ranges": 1}, "in what the metadata tells"),
        ({"form": "static"}, "'ranges'"),
        ({**TOLD, "calibration": {"rows": 1, "sha256": "a text"}}, "no SHA-256 of the rows"),
    ],
)
def test_what_no_quantisation_tells_is_refused(files: dict[str, bytes], told: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        requantize(files[ONNX_FILE], told)


_IN_A_PROCESS = """
import sys, hashlib, numpy as np
from export.quantization import quantize
ids = np.arange(80).reshape(8, 10) % 40
data = quantize(sys.stdin.buffer.read(), [(ids, np.ones_like(ids))], form=sys.argv[1])
print(hashlib.sha256(data).hexdigest())
"""


@pytest.mark.parametrize("form", FORMS)
def test_two_processes_write_the_same_bytes(files: dict[str, bytes], form: str) -> None:
    hashes = {
        subprocess.run(
            [sys.executable, "-c", _IN_A_PROCESS, form],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed, "OMP_NUM_THREADS": threads},
            input=files[ONNX_FILE],
            capture_output=True,
            check=True,
        ).stdout
        for seed, threads in (("1", "1"), ("2", "2"))
    }
    assert len(hashes) == 1


def test_calibration_is_over_rows_and_not_over_how_they_are_batched(files: dict[str, bytes], batches: Batches) -> None:
    alone = [(ids[row : row + 1], mask[row : row + 1]) for ids, mask in batches for row in range(len(ids))]
    together, apart = (
        metadata_of(quantize(files[ONNX_FILE], given, form="static"))["quantization"]["ranges"]
        for given in (batches, alone)
    )
    for name, ends in together.items():
        assert apart[name] == pytest.approx(ends, rel=1e-3)


def test_what_can_not_be_quantised_is_refused(files: dict[str, bytes], batches: Batches) -> None:
    with pytest.raises(ValueError, match="the form must be one of static, qdq, dynamic; got int4"):
        quantize(files[ONNX_FILE], batches, form="int4")
    with pytest.raises(ValueError, match="calibration needs rows of the training split; got none"):
        quantize(files[ONNX_FILE], [], form="static")
    with pytest.raises(ValueError, match="a weight is not finite"):
        quantize(spoilt(files, "head.4.weight"), batches, form="static")
    with pytest.raises(ValueError, match=r"what encoder.blocks.0.attention.qkv/MatMul takes can't be quantised"):
        quantize(spoilt(files, "encoder.blocks.0.attention_norm.bias"), batches, form="static")


def spoilt(files: dict[str, bytes], name: str) -> bytes:
    def edit(model: onnx.ModelProto) -> None:
        (tensor,) = (tensor for tensor in model.graph.initializer if tensor.name == name)
        values = numpy_helper.to_array(tensor).copy()
        values.reshape(-1)[0] = np.nan
        tensor.CopyFrom(numpy_helper.from_array(values, name))

    changed = {ONNX_FILE: files[ONNX_FILE]}
    edit_onnx(changed, edit)
    return changed[ONNX_FILE]


def test_a_graph_whose_linears_are_not_ferrys_is_refused(files: dict[str, bytes], batches: Batches) -> None:
    changed = {ONNX_FILE: files[ONNX_FILE]}

    def edit(model: onnx.ModelProto) -> None:
        product = next(node for node in model.graph.node if node.op_type == "MatMul")
        product.op_type = "Gemm"

    edit_onnx(changed, edit)
    with pytest.raises(ValueError, match=r"the Linear encoder\S+ is not a MatMul by a turned weight"):
        quantize(changed[ONNX_FILE], batches, form="static")
