"""What rules leave behind: nodes for nothing, and again in every layer what all layers share."""

import onnx_ir as ir
from onnx_ir.passes.common import (
    CommonSubexpressionEliminationPass,
    DeduplicateInitializersPass,
    IdentityEliminationPass,
    LiftConstantsToInitializersPass,
    RemoveUnusedNodesPass,
)


def clean(model: ir.Model) -> None:
    for tidy in (
        IdentityEliminationPass(),
        LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
        DeduplicateInitializersPass(),
        CommonSubexpressionEliminationPass(),
        RemoveUnusedNodesPass(),
    ):
        tidy(model)
