"""The files of other precisions: each is what Ferry makes of this very model.onnx, to the byte.

model.onnx is judged in full by the other checks. A file that follows from it holds its weights, each rounded as it
should be, its biases, norms, labels and limits, and nothing else. What a quantised file alone can know is what
calibration found: the ranges of what Linears take. Its metadata tells them, the scales in its graph follow from them,
and where the rows of calibration are at hand, in a run, the ranges are found again.
"""

import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import numpy_helper

from export.node_names import module_of
from export.onnx_export import ONNX_FILE, read_onnx
from export.precision_files import ONNX_INT8_FILE, REWRITE
from export.proof.checks.files import Files
from export.quantization import FORMS, calibrate
from export.quantization.linears import find_linears

# Machines round sums differently: by some units of the four digits that are told.
_SAME_RANGE = 2e-3


def check_derived(files: Files) -> list[str]:
    """Write every optional file again, and compare."""
    return [problem for name in files.optional for problem in _check_derived(files, name)]


def _check_derived(files: Files, name: str) -> Iterator[str]:
    data = files.read(name)
    model = read_onnx(data)
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        yield f"{name} is refused by onnx.checker: {(str(error).strip().splitlines() or ['no reason given'])[0]}"
        return
    try:
        wanted = REWRITE[name](files.read(ONNX_FILE), files.metadata_in(name))
    except ValueError as error:
        yield f"{name} can't be written again from {ONNX_FILE}: {error}"
        return
    if data != wanted:
        yield f"{name} is not what Ferry makes of {ONNX_FILE}: {_first_difference(model, read_onnx(wanted))}"


def _first_difference(got: onnx.ModelProto, wanted: onnx.ModelProto) -> str:
    """Say where two models differ first: tensors, then nodes, then the rest."""
    mine, right = ({tensor.name: tensor for tensor in model.graph.initializer} for model in (got, wanted))
    for name in sorted(mine.keys() ^ right.keys()):
        return f"it {'holds' if name in mine else 'lacks'} the tensor {name!a}"
    for name, tensor in mine.items():
        if tensor != right[name]:
            return f"other values in the tensor {name}{_told(tensor, right[name])}"
    for node, other in zip(got.graph.node, wanted.graph.node, strict=False):
        if node != other:
            return f"{node.op_type} {node.name!a} is not {other.op_type} {other.name!a} as it should be"
    if len(got.graph.node) != len(wanted.graph.node):
        return f"{len(got.graph.node)} nodes, which should be {len(wanted.graph.node)}"
    if list(got.metadata_props) != list(wanted.metadata_props):
        return "its metadata tells otherwise"
    return "what it says beside tensors, nodes and metadata"


def _told(tensor: onnx.TensorProto, other: onnx.TensorProto) -> str:
    if (list(tensor.dims), tensor.data_type) != (list(other.dims), other.data_type):
        return ", which has another shape or type"
    got, wanted = (np.asarray(numpy_helper.to_array(part)).reshape(-1) for part in (tensor, other))
    # Bits, for -0 is not 0 and NaN may equal itself.
    places = np.flatnonzero([mine.tobytes() != right.tobytes() for mine, right in zip(got, wanted, strict=True)])
    return f": {got[places[0]]}, where {wanted[places[0]]} follows" if len(places) else ""


def check_integers(files: Files) -> list[str]:
    """Count the Linears that are sums of integers once ONNX Runtime's CPU has optimised the quantised file."""
    if ONNX_INT8_FILE not in files.optional:
        return []
    form = files.metadata_in(ONNX_INT8_FILE).get("quantization", {}).get("form")
    if form not in FORMS:
        return [f"{ONNX_INT8_FILE} must tell a form of {', '.join(FORMS)}; got {form!r}"]
    wanted = len(find_linears(files.onnx.graph))
    got = _operators(files.read(ONNX_INT8_FILE))
    found, left = got[FORMS[form].operator], got["MatMul"] + got["Gemm"] + got["FusedMatMul"]
    # Attention that is written out has products of its own, two a layer.
    if found == wanted and left == len(_products(files)) - wanted:
        return []
    return [
        f"{ONNX_INT8_FILE}, form {form}: ONNX Runtime runs {found} of {wanted} Linears as {FORMS[form].operator}, "
        f"and {left} products in float"
    ]


def _products(files: Files) -> list[onnx.NodeProto]:
    return [node for node in files.graph.nodes if node.op_type in ("MatMul", "Gemm")]


def _operators(model: bytes) -> Counter[str]:
    """Return how often each operator stands in a graph that ONNX Runtime has optimised for this CPU."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "optimised.onnx"
        options.optimized_model_filepath = str(file)
        ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        return Counter(node.op_type for node in onnx.load_from_string(file.read_bytes()).graph.node)


def check_ranges(files: Files) -> list[str]:
    """Calibrate again, and compare what the file tells; outside a run there are no rows to do it with."""
    if ONNX_INT8_FILE not in files.optional or files.calibration is None:
        return []
    told: dict[str, Any] = files.metadata_in(ONNX_INT8_FILE).get("quantization", {})
    if not FORMS[told["form"]].calibrated:
        return []
    found = calibrate(files.read(ONNX_FILE), files.calibration)
    if told["calibration"] != {"rows": found.rows, "sha256": found.sha256}:
        return [f"{ONNX_INT8_FILE} was calibrated on other rows than those that training left"]
    problems = []
    for name, values in found.ranges.items():
        ends, wanted = np.array(told["ranges"][name]), np.array([values.low, values.high])
        # Written so that NaN fails.
        if not np.abs(ends - wanted).max() <= _SAME_RANGE * np.abs(wanted).max():
            shown = module_of(name)
            problems.append(f"{ONNX_INT8_FILE}: {shown} takes {values.low} to {values.high}; it tells {ends.tolist()}")
    return problems
