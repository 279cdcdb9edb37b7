"""The precision that a training step computes in: float32, or matrix products in bfloat16 by autocast.

Weights, gradients, AdamW's moments, the loss and validation are float32 either way: a weight near 1 has steps of 2⁻⁸ in
bfloat16, and would not see an update of 1e-4.

Cost: bfloat16 rounds every weight and many activations once a step. That is won back where the processor multiplies
matrices in it (AMX; AVX-512's BF16) and the model is wide, and lost where it does not.
"""

from collections.abc import Callable
from functools import wraps

import torch
from torch import Tensor, nn

from models.self_attention import SelfAttention

# (input_ids, attention_mask), both (B, T) int64 -> logits, float32.
Forward = Callable[[Tensor, Tensor], Tensor]


def forward_in(precision: str, model: nn.Module) -> Forward:
    """Return the model's forward in a precision of `pipeline.config.PRECISIONS`.

    On the CPU the attention mechanisms of the model keep float32 from now on: the bfloat16 kernel of fused attention is
    several times slower there than the float32 one, backward above all.
    """
    if precision == "float32":
        return model
    device = next(model.parameters()).device.type
    if device == "cpu":
        for module in model.modules():
            if isinstance(module, SelfAttention):
                # Replaced on the instance: the names of the weights stay.
                module.attend.forward = _in_float32(module.attend.forward)

    def forward(input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        with torch.autocast(device, torch.bfloat16):
            logits: Tensor = model(input_ids, attention_mask)
        return logits.float()

    return forward


def _in_float32(forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Run a mechanism's forward in float32, whatever autocast says around it."""

    @wraps(forward)
    def inner(q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None, bias: Tensor | None) -> Tensor:
        with torch.autocast(q.device.type, enabled=False):
            return forward(q.float(), k.float(), v.float(), keep, None if bias is None else bias.float())

    return inner


def bfloat16_unit() -> str:
    """Name what multiplies bfloat16 on this processor; its sums round in an order of their own."""
    if torch.cpu._is_amx_tile_supported():
        return "AMX"
    return "AVX-512" if torch.cpu._is_avx512_bf16_supported() else "none"
