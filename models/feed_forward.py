"""The position-wise feed-forward network, and ACTIVATIONS.

Cost: O(N·C·F) time and N·F floats.
Does not support gated units.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class ActivationRow:
    """A non-linearity without parameters."""

    build: Callable[[], nn.Module]
    summary: str


ACTIVATIONS: dict[str, ActivationRow] = {
    "relu": ActivationRow(build=nn.ReLU, summary="max(0, x), as in the Transformer paper"),
    "gelu": ActivationRow(build=nn.GELU, summary="x·Φ(x) by the exact error function, as in BERT"),
}


class FeedForward(nn.Module):
    """FFN(x) = W₂ f(W₁ x + b₁) + b₂. Source: "Attention Is All You Need", equation 2."""

    def __init__(self, dim: int, hidden_dim: int, *, activation: nn.Module) -> None:
        super().__init__()
        self.up = nn.Linear(dim, hidden_dim)
        self.activation = activation
        self.down = nn.Linear(hidden_dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """(…, C) -> (…, C), each token by itself."""
        x = self.down(self.activation(self.up(x)))
        return x
