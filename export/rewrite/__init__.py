"""Rewrite rules: what the exporter's graph becomes, so that ONNX Runtime's CPU spends its time on matrix products.

A rule is a pattern and what replaces it, or rewrites the whole graph at once. None changes a number beyond rounding,
and the proof judges what comes out.
"""

from collections.abc import Sequence

import onnx_ir as ir

from export.rewrite.attention import ATTENTION
from export.rewrite.clean import clean
from export.rewrite.leading_axes import LEADING_AXES, NO_SQUEEZE
from export.rewrite.linear import LINEAR
from export.rewrite.lower import ATTENTION_WRITTEN_OUT, GELU_BY_ERF
from export.rewrite.rule import Rule
from export.rewrite.uneven import UNEVEN

# In this order, each over the whole graph before the next.
FOR_CPU: tuple[Rule, ...] = (ATTENTION, LINEAR, UNEVEN, LEADING_AXES, NO_SQUEEZE)
# For old runtimes.
LOWERED: tuple[Rule, ...] = (ATTENTION, LINEAR, LEADING_AXES, NO_SQUEEZE, ATTENTION_WRITTEN_OUT, GELU_BY_ERF)


def rewrite(model: ir.Model, rules: Sequence[Rule]) -> dict[str, int]:
    """Apply rules to a model in place, and return how often each fired, by its name."""
    fired = {str(rule): rule.apply_to_model(model) for rule in rules}
    clean(model)
    return fired
