"""PROFILES: where an ONNX file is to run, and what it is written like for that.

A row chooses opset, IR version and rewrite rules. All rows compute one function, take one checkpoint and have the same
inputs and outputs. A file says in its metadata which row it is of, and is held to it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from export.quantization.forms import DYNAMIC, QDQ, STATIC
from export.rewrite import FOR_CPU, LOWERED
from export.rewrite.rule import Rule

# The command line has its own copy, for it imports nothing heavy; a test holds both together.
DEFAULT_PROFILE = "cpu"


@dataclass(frozen=True, kw_only=True)
class Profile:
    """One row.

    `minimum_onnxruntime` is the oldest release that was seen to load the files and to answer rightly. `fused` and
    `gelu` are the operators that fused attention and the GELU become. `int8_forms` are the keys of
    `export.quantization.FORMS` that it allows, its own first.
    """

    use: str
    opset: int
    ir_version: int
    rules: Sequence[Rule]
    minimum_onnxruntime: str
    fused: str
    gelu: str
    int8_forms: Sequence[str]


PROFILES: dict[str, Profile] = {
    "cpu": Profile(
        use="ONNX Runtime's CPU: the fastest form there",
        opset=23,
        ir_version=10,
        rules=FOR_CPU,
        minimum_onnxruntime="1.23.2",
        fused="Attention",
        gelu="Gelu",
        int8_forms=(STATIC, QDQ, DYNAMIC),
    ),
    "cuda": Profile(
        use="NVIDIA GPUs: as PyTorch writes it, for its products and sums are one operator there",
        opset=23,
        ir_version=10,
        rules=(),
        # Attention has a CUDA kernel since 1.25; of releases with one, the proof was written for this.
        minimum_onnxruntime="1.31.1",
        fused="Attention",
        gelu="Gelu",
        int8_forms=(),
    ),
    "web": Profile(
        use="browsers, by ONNX Runtime Web: as fast in WebAssembly as the CPU's form, and read by older releases",
        opset=18,
        ir_version=8,
        rules=LOWERED,
        # Of onnxruntime-web; older ones were not tried.
        minimum_onnxruntime="1.17.3",
        fused="Softmax",
        gelu="Erf",
        int8_forms=(QDQ, DYNAMIC),
    ),
    "portable": Profile(
        use="any runtime: operators of opset 18 alone",
        opset=18,
        ir_version=8,
        rules=LOWERED,
        minimum_onnxruntime="1.16.3",
        fused="Softmax",
        gelu="Erf",
        int8_forms=(QDQ, DYNAMIC),
    ),
}
