"""Rewrite rules: what the exporter's graph becomes, so that ONNX Runtime's CPU spends its time on matrix products.

A rule is a pattern and what replaces it. None changes a number beyond rounding, and the proof judges what comes out.
"""

from collections.abc import Sequence

import onnx_ir as ir
from onnx_ir.passes.common import (
    CommonSubexpressionEliminationPass,
    DeduplicateInitializersPass,
    IdentityEliminationPass,
    LiftConstantsToInitializersPass,
    RemoveUnusedNodesPass,
)
from onnxscript.rewriter import RewriteRule, RewriteRuleSet

from export.rewrite.attention import ATTENTION
from export.rewrite.linear import GELU_INSIDE, LINEAR, NO_SQUEEZE
from export.rewrite.lower import ATTENTION_WRITTEN_OUT, GELU_BY_ERF

# In this order, each over the whole graph before the next.
FOR_CPU: tuple[RewriteRule, ...] = (ATTENTION, LINEAR, GELU_INSIDE, NO_SQUEEZE)
# After those, for old runtimes.
LOWERED: tuple[RewriteRule, ...] = (ATTENTION_WRITTEN_OUT, GELU_BY_ERF)


def rewrite(model: ir.Model, rules: Sequence[RewriteRule]) -> dict[str, int]:
    """Apply rules to a model in place, and return how often each fired, by its name."""
    fired = {str(rule): RewriteRuleSet([rule]).apply_to_model(model) for rule in rules}
    # Rules fire once a layer, and write again what layers share.
    for clean in (
        IdentityEliminationPass(),
        LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
        DeduplicateInitializersPass(),
        CommonSubexpressionEliminationPass(),
        RemoveUnusedNodesPass(),
    ):
        clean(model)
    return fired
