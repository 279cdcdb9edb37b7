"""Faults of model_int8.onnx and model_fp16.onnx, beside a genuine model.onnx.

What no check outside a run can tell is another calibration, told consistently in metadata and scales: that is another
honest rounding of the same weights, and `ferry verify` judges its accuracy.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import onnx
from onnx import numpy_helper

from export.onnx_export import ONNX_FILE
from export.precision_files import ONNX_FP16_FILE, ONNX_INT8_FILE
from export.proof.runtimes import Array
from tests.sabotage.artifact import Contents, other_precision
from tests.sabotage.faults.fault import DEEP, Fault
from tests.sabotage.tools import export_twin

_DERIVED = "other precisions follow from model.onnx"
_UP = "encoder.blocks.0.feed_forward.up"


def _edit(contents: Contents, file: str, edit: Callable[[onnx.ModelProto], object]) -> None:
    model = onnx.load_from_string(contents[file])
    edit(model)
    contents[file] = model.SerializeToString(deterministic=True)


def _tensor(
    name: str, change: Callable[[Array], object], *, file: str = ONNX_INT8_FILE, number: bool = False
) -> Callable[[Contents], None]:
    """Change the first tensor whose name ends so; with `number`, the first that is a single number."""

    def edit(model: onnx.ModelProto) -> None:
        named = (tensor for tensor in model.graph.initializer if tensor.name.endswith(name))
        tensor = next(tensor for tensor in named if not (number and tensor.dims))
        values = numpy_helper.to_array(tensor).copy()
        change(values)
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))

    return partial(_edit, file=file, edit=edit)


def _step(values: Array) -> None:
    """Change the first number by one level."""
    values.reshape(-1)[0] ^= 1


def _scale(values: Array) -> None:
    values *= np.float32(1.01)


def _half_up(values: Array) -> None:
    values[0, 0] += np.float16(0.5)


def _of_another_model(contents: Contents, file: str) -> None:
    """Make the file from a model of the same shapes and other weights, under the genuine metadata."""
    twin = dict(contents)
    export_twin(twin, ONNX_FILE, lambda model: model.get_parameter(f"{_UP}.weight").mul_(1.5))
    contents[file] = other_precision(twin, file)


def _node_added(model: onnx.ModelProto) -> None:
    cast = model.graph.node.add(op_type="Identity", input=["attention_mask"], output=["second"], name="second")
    assert cast.name


def _renamed_producer(model: onnx.ModelProto) -> None:
    model.producer_name = "somebody else"


FAULTS: tuple[Fault, ...] = (
    *(
        Fault(id=id, kind="a quantised file that was edited", base=DEEP, plant=plant, check=_DERIVED)
        for id, plant in (
            ("int8-one-weight", _tensor("up.weight_quantized", _step)),
            ("int8-activation-scale", _tensor("_scale", _scale, number=True)),
            ("int8-weight-scale", _tensor("up.weight_scale", _scale)),
            ("int8-zero-point", _tensor("_zero_point", _step)),
            ("int8-bias", _tensor("up.bias", _scale)),
            ("int8-table", _tensor("embedding.weight_quantized", _step)),
            ("int8-node", partial(_edit, file=ONNX_INT8_FILE, edit=_node_added)),
            ("int8-producer", partial(_edit, file=ONNX_INT8_FILE, edit=_renamed_producer)),
        )
    ),
    Fault(
        id="fp16-one-weight",
        kind="a file in half precision that was edited",
        base=DEEP,
        plant=_tensor("up.weight", _half_up, file=ONNX_FP16_FILE),
        check=_DERIVED,
    ),
    *(
        Fault(
            id=f"{id}-of-another-model",
            kind="a file of another precision made from another model",
            base=DEEP,
            plant=partial(_of_another_model, file=file),
            check=_DERIVED,
        )
        for id, file in (("int8", ONNX_INT8_FILE), ("fp16", ONNX_FP16_FILE))
    ),
    Fault(
        id="int8-is-float32",
        kind="a file of another precision that is model.onnx",
        base=DEEP,
        plant=lambda contents: contents.update({ONNX_INT8_FILE: contents[ONNX_FILE]}),
        check=_DERIVED,
    ),
    Fault(
        id="int8-missing",
        kind="a file of another precision that is missing",
        base=DEEP,
        plant=lambda contents: contents.pop(ONNX_INT8_FILE),
        check="hashes",
    ),
)
