"""What a rewrite rule is: onnxscript's pattern with a replacement is one, and so is what has to see the whole graph."""

from typing import Protocol

import onnx_ir as ir


class Rule(Protocol):
    """Its name is what str() gives."""

    def apply_to_model(self, model: ir.Model) -> int:
        """Rewrite a model in place, and return how often it fired."""
        ...
