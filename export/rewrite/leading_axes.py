"""What stands between Linears keeps their leading axes: no Squeeze and no Unsqueeze on the way through a layer.

Sums, norms and activations work on (1, 1, N, C) as they do on (N, C), and Add and Gelu come to stand side by side, of
which ONNX Runtime makes one BiasGelu.
"""

from typing import Any

import onnx_ir as ir
from onnxscript.rewriter import RewriteRule

from export.rewrite.linear import LEADING

# They work on the last axis, or on each number; of a LayerNormalization only the first input has the leading axes.
_ALIKE = frozenset({"Add", "Gelu", "LayerNormalization", "Relu"})


class LeadingAxes:
    """The rule: it fires for a sum, norm or activation that takes what a Linear gives, or another of these."""

    def __str__(self) -> str:
        return "leading axes"

    def apply_to_model(self, model: ir.Model) -> int:
        """See `Rule`."""
        fired = 0
        # In their order, so that what one gives the next can take.
        for node in model.graph:
            if node.op_type not in _ALIKE:
                continue
            squeezes = [_squeeze_of(value) for value in node.inputs]
            axes = next((squeeze.inputs[1] for squeeze in squeezes if squeeze is not None), None)
            (narrow,) = node.outputs
            if axes is None or narrow.is_graph_output():
                continue
            for place, squeeze in enumerate(squeezes):
                if squeeze is not None:
                    node.replace_input_with(place, squeeze.inputs[0])
            outside = ir.Node("", "Squeeze", [narrow, axes], metadata_props=node.metadata_props)
            (squeezed,) = outside.outputs
            squeezed.type, squeezed.shape = narrow.type, narrow.shape
            narrow.shape = ir.Shape([1] * len(LEADING) + list(narrow.shape)) if narrow.shape is not None else None
            ir.convenience.replace_all_uses_with(narrow, squeezed)
            outside.replace_input_with(0, narrow)
            model.graph.insert_after(node, outside)
            fired += 1
        return fired


def _out_and_in(op: Any, x: ir.Value, out: ir.Value, back: ir.Value) -> Any:
    return op.Unsqueeze(op.Squeeze(x, out), back)


def _as_it_was(op: Any, x: ir.Value, **_: ir.Value) -> Any:
    return op.Identity(x)


def _same_axes(_: Any, out: ir.Value, back: ir.Value, **__: ir.Value) -> bool:
    return _are_leading(out) and _are_leading(back)


LEADING_AXES = LeadingAxes()
NO_SQUEEZE = RewriteRule(_out_and_in, _as_it_was, _same_axes, name="no squeeze")


def _squeeze_of(value: ir.Value | None) -> ir.Node | None:
    """Return the Squeeze of the leading axes that gives a value, if one does."""
    node = None if value is None else value.producer()
    if node is None or node.op_type != "Squeeze":
        return None
    return node if _are_leading(next(iter(node.inputs[1:]), None)) else None


def _are_leading(axes: ir.Value | None) -> bool:
    stored = None if axes is None else ir.convenience.get_const_tensor(axes)
    return stored is not None and tuple(stored.numpy().tolist()) == LEADING
