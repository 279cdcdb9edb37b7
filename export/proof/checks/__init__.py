"""What running can't show: the structure of the model files, their metadata, and what must not be in them.

One table, CHECKS, holds a row for each check, with its parts: one for the ONNX file and the TorchScript file, and one
for model.pt2. A part reads bytes and returns the problems that it found.
"""

from export.proof.checks import (
    attention,
    attributes,
    foreign,
    fresh_onnx,
    fresh_pt2,
    fresh_script,
    inference,
    interface,
    metadata,
    precisions,
    pt2_graph,
    pt2_program,
    script_records,
    traces,
    weight_uses,
    weights,
)
from export.proof.checks.files import Check, CheckResult, Files, run_check
from export.proof.checks.traces import find_texts

__all__ = ["CHECKS", "CheckResult", "Files", "check_files", "find_texts"]

CHECKS: dict[str, tuple[Check, ...]] = {
    "onnx.checker": (interface.check_onnx,),
    "opset and IR version": (interface.check_versions,),
    "minimum runtime": (interface.check_minimum_runtime,),
    "inputs, outputs, axes": (interface.check_interface, pt2_program.check_interface),
    "no frozen axis": (interface.check_axes, pt2_graph.check_axes),
    "no size of the example": (interface.check_example_sizes, pt2_program.check_example_sizes),
    "self-contained": (interface.check_self_contained,),
    "metadata": (metadata.check_metadata,),
    "weights": (weights.check_weights, pt2_program.check_tensors),
    "weights in their places": (weight_uses.check_uses, pt2_graph.check_uses),
    "weights stored once": (weights.check_stored_once, pt2_graph.check_stored_once),
    "tables": (weights.check_tables,),
    "LayerNorm epsilon": (attributes.check_epsilon,),
    "activation": (attributes.check_activation, pt2_graph.check_activation),
    "attention": (attention.check_attention, pt2_graph.check_attention),
    "fused attention": (attention.check_fused, pt2_graph.check_fused),
    "operators' attributes": (attributes.check_fixed_attributes, pt2_program.check_attributes),
    "numbers": (attributes.check_scalars, pt2_graph.check_scalars),
    "inference mode": (inference.check_inference_mode, pt2_program.check_inference_mode),
    "no baked device": (inference.check_devices, pt2_graph.check_devices),
    "no source paths": (traces.check_no_traces,),
    "no user's or machine's name": (traces.check_no_names,),
    "nothing foreign": (foreign.check_foreign, pt2_graph.check_foreign),
    "model.onnx is a fresh export": (fresh_onnx.check_onnx_graph,),
    "nothing runs beside forward": (script_records.check_code_beside_forward,),
    "model.pt is a fresh export": (fresh_script.check_script_graph, script_records.check_script_records),
    "model.pt2 is a fresh export": (fresh_pt2.check_pt2_graph,),
    "other precisions follow from model.onnx": (precisions.check_derived,),
    "every Linear of int8 in integers": (precisions.check_integers,),
    "ranges of int8 are those of the training rows": (precisions.check_ranges,),
}


def check_files(files: Files) -> list[CheckResult]:
    """Make every check of the table; whoever keeps `files` after that keeps what was read of them."""
    return [run_check(name, parts, files) for name, parts in CHECKS.items()]
