"""Rewrite rules: what the exporter's graph becomes, so that ONNX Runtime's CPU spends its time on matrix products.

A rule is a pattern and what replaces it. None changes a number beyond rounding, and the proof judges what comes out.
"""

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

# In this order, each over the whole graph before the next.
RULES: tuple[RewriteRule, ...] = (ATTENTION, LINEAR, GELU_INSIDE, NO_SQUEEZE)


def rewrite(model: ir.Model) -> dict[str, int]:
    """Apply RULES to a model in place, and return how often each fired, by its name."""
    fired = {str(rule): RewriteRuleSet([rule]).apply_to_model(model) for rule in RULES}
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
