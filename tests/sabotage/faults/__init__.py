"""FAULTS: every planted fault in one table."""

from tests.sabotage.faults import (
    archives,
    beside_forward,
    contracts,
    documents,
    onnx_graphs,
    packing,
    precisions,
    runs,
    tokenizers,
    twins,
    weights,
)
from tests.sabotage.faults.fault import Fault

FAULTS: tuple[Fault, ...] = (
    *weights.FAULTS,
    *twins.FAULTS,
    *onnx_graphs.FAULTS,
    *precisions.FAULTS,
    *archives.FAULTS,
    *beside_forward.FAULTS,
    *contracts.FAULTS,
    *tokenizers.FAULTS,
    *documents.FAULTS,
    *packing.FAULTS,
    *runs.FAULTS,
)
