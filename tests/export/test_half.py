"""The file in half precision: every number rounded once, and float32 where the contract has it."""

import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from export.contract import ATTENTION_MASK, INPUT_IDS, LOGITS, ONNX_METADATA_KEY
from export.half import write_half
from export.onnx_export import ONNX_FILE
from tests.export.proof.subjects import build_files
from tests.sabotage.tools import edit_onnx


@pytest.fixture(scope="module")
def model() -> bytes:
    return build_files(position="learned")[ONNX_FILE]


def tensors(data: bytes) -> dict[str, np.ndarray]:
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load_from_string(data).graph.initializer}


def test_every_float_is_rounded_to_half_and_nothing_else_is_touched(model: bytes) -> None:
    before, after = tensors(model), tensors(write_half(model))
    assert before.keys() == after.keys()
    for name, values in before.items():
        if values.dtype == np.float32:
            assert after[name].dtype == np.float16
            np.testing.assert_array_equal(after[name], values.astype(np.float16))
        else:
            np.testing.assert_array_equal(after[name], values)


def test_ids_go_in_and_float32_logits_come_out(model: bytes) -> None:
    half = onnx.load_from_string(write_half(model))
    onnx.checker.check_model(half, full_check=True)
    kinds = {value.name: value.type.tensor_type.elem_type for value in (*half.graph.input, *half.graph.output)}
    assert kinds == {INPUT_IDS: TensorProto.INT64, ATTENTION_MASK: TensorProto.INT64, LOGITS: TensorProto.FLOAT}
    casts = [node for node in half.graph.node if node.op_type == "Cast"]
    to_float = [cast for cast in casts if cast.attribute[0].i == TensorProto.FLOAT]
    assert [list(cast.output) for cast in to_float] == [[LOGITS]]


def test_the_metadata_tells_the_precision(model: bytes) -> None:
    (before,), (after,) = (onnx.load_from_string(data).metadata_props for data in (model, write_half(model)))
    assert before.key == after.key == ONNX_METADATA_KEY
    assert json.loads(after.value) == {**json.loads(before.value), "precision": "float16"}


def test_it_has_half_the_weights_and_the_same_bytes_each_time(model: bytes) -> None:
    half = write_half(model)
    assert half == write_half(model)
    assert sum(values.nbytes for values in tensors(half).values() if values.dtype == np.float16) * 2 == sum(
        values.nbytes for values in tensors(model).values() if values.dtype == np.float32
    )


def test_a_number_that_half_can_not_hold_is_refused(model: bytes) -> None:
    files = {ONNX_FILE: model}

    def enlarge(proto: onnx.ModelProto) -> None:
        (tensor,) = (tensor for tensor in proto.graph.initializer if tensor.name == "head.4.bias")
        values = numpy_helper.to_array(tensor).copy()
        values[0] = 7e4
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))

    edit_onnx(files, enlarge)
    with pytest.raises(ValueError, match=r"head\.4\.bias holds 70000, which half precision can't.*65504"):
        write_half(files[ONNX_FILE])
