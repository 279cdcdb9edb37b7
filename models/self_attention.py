"""Self-attention on packed tokens: qkv -> position -> attend -> merge -> out.

Cost: O(N·C²) time for the projections, and the mechanism's cost on the (B, L) rectangle.
Does not support pairwise masks: who sees whom is the mechanism's affair.
"""

from torch import Tensor, nn

from models.functional import merge_heads, split_heads
from models.multi_head_attention import head_width
from models.packing import Packing, lay_out, pack
from models.position.base import Position


class SelfAttention(nn.Module):
    """Multi-head self-attention with one fused projection for queries, keys and values.

    Source: "Attention Is All You Need", section 3.2.2.
    """

    def __init__(self, dim: int, num_heads: int, *, attend: nn.Module, position: Position, bias: bool = True) -> None:
        """Plug mechanism and position in.

        Args:
            dim: model width.
            num_heads: heads; each is dim / num_heads wide.
            attend: the mechanism, built from a row of ATTENTIONS.
            position: the position, of which this layer uses `rotate`.
            bias: whether the two projections have biases.

        Raises:
            ValueError: if dim is not divisible by num_heads.
        """
        super().__init__()
        head_width(dim, num_heads)
        self.num_heads = num_heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=bias)
        self.position: Position = position
        self.attend = attend
        self.out = nn.Linear(dim, dim, bias=bias)

    def forward(self, x: Tensor, packing: Packing, bias: Tensor | None) -> Tensor:
        """Let the tokens of each row look at each other.

        Args:
            x: (N, C) packed tokens.
            packing: where they stand.
            bias: (1 or B, H, L, L) float, added to the scores; or None.

        Returns:
            (N, C).
        """
        q, k, v = lay_out(self.qkv(x), packing.aligned).chunk(3, dim=2)  # (B, L, C)
        q, k, v = split_heads(q, self.num_heads), split_heads(k, self.num_heads), split_heads(v, self.num_heads)
        q, k = self.position.rotate(q, k, packing.column)  # (B, H, L, D)
        mixed = merge_heads(self.attend(q, k, v, packing.seen, bias))  # (B, L, C)
        x = self.out(pack(mixed, packing.slot))  # (N, C)
        return x
