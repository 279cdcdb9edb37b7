"""The quantised graph: every Linear and every table of an exported one in integers, everything else as it was.

A pure function of the float32 file and of what calibration found, so that a file is judged by writing it again.
"""

from collections.abc import Mapping
from typing import Any

import onnx
from onnx import numpy_helper

from export.metadata_props import add_metadata
from export.quantization.forms import FORMS, write_lookup
from export.quantization.linears import find_linears, find_lookups
from export.quantization.scales import Range
from export.quantization.written import Written


def write_quantized(model: bytes, form: str, ranges: Mapping[str, Range], told: dict[str, Any]) -> bytes:
    """Quantise an exported model.

    Args:
        model: the bytes of an ONNX file that Ferry exported.
        form: a key of FORMS.
        ranges: what each Linear takes, by its name; none for a form that is not calibrated.
        told: what the metadata gets beside what it holds.

    Raises:
        ValueError: if the graph is not one of Ferry's, ranges do not fit it, or a weight is not finite.
    """
    proto = onnx.load_from_string(model)
    graph = proto.graph
    linears = {linear.product.output[0]: linear for linear in find_linears(graph)}
    lookups = {node.output[0] for node in find_lookups(graph)}
    sums = {linear.output for linear in linears.values() if linear.sums}
    names = {linear.name for linear in linears.values()} if FORMS[form].calibrated else set()
    if names != ranges.keys():
        other = ", ".join(sorted(names ^ ranges.keys()))
        raise ValueError(f"the form {form} needs the ranges of the graph's own Linears; they differ in {other}.")
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    written = Written()
    for node in graph.node:
        output = node.output[0]
        if output in linears:
            linear = linears[output]
            weight = numpy_helper.to_array(tensors[linear.weight])
            weight = weight[linear.part.of(len(weight))]
            FORMS[form].write(written, linear, weight, ranges.get(linear.name))
        elif output in lookups:
            write_lookup(written, node, numpy_helper.to_array(tensors[node.input[0]]))
        elif output not in sums:
            written.nodes.append(node)
    written.replace_in(graph)
    proto.opset_import.extend(onnx.helper.make_opsetid(domain, 1) for domain in FORMS[form].domains)
    add_metadata(proto, told)
    data: bytes = proto.SerializeToString(deterministic=True)
    return data
