"""Multi-head attention with queries, keys and values from different sources, on rectangles.

Cost: O((T + S)·C²) time for the projections, and the mechanism's cost on H heads.
Does not support packed tokens or positions; the encoder's own layer is `SelfAttention`.
"""

from torch import Tensor, nn

from models.attention.sdpa import SDPAttention
from models.functional import merge_heads, split_heads


def head_width(dim: int, num_heads: int) -> int:
    """The width of one head.

    Raises:
        ValueError: if the heads do not share the width evenly; names both numbers.
    """
    if num_heads < 1 or dim < 1 or dim % num_heads != 0:
        raise ValueError(
            f"width {dim} not divisible by {num_heads} heads. Choose a width that is a multiple of the heads."
        )
    return dim // num_heads


class MultiHeadAttention(nn.Module):
    """MultiHead(Q, K, V) = Concat(head₁ … head_H) W^O, head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V).

    Source: "Attention Is All You Need", section 3.2.2. With num_heads=1 it is single-head attention.
    """

    def __init__(
        self,
        dim: int = 512,
        num_heads: int = 8,
        *,
        key_dim: int | None = None,
        value_dim: int | None = None,
        bias: bool = True,
        attend: nn.Module | None = None,
    ) -> None:
        """Plug the mechanism in.

        Args:
            dim: width of the queries and of the output.
            num_heads: heads; each is dim / num_heads wide.
            key_dim: width of the keys' source; dim if None.
            value_dim: width of the values' source; dim if None.
            bias: whether the four projections have biases.
            attend: the mechanism, built from a row of ATTENTIONS; SDPA without the causal rule if None.

        Raises:
            ValueError: if dim is not divisible by num_heads.
        """
        super().__init__()
        head_width(dim, num_heads)
        self.num_heads = num_heads
        self.query = nn.Linear(dim, dim, bias=bias)
        self.key = nn.Linear(dim if key_dim is None else key_dim, dim, bias=bias)
        self.value = nn.Linear(dim if value_dim is None else value_dim, dim, bias=bias)
        self.attend = SDPAttention() if attend is None else attend
        self.out = nn.Linear(dim, dim, bias=bias)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, keep: Tensor | None = None) -> Tensor:
        """Attend from `query` to `key`, and mix `value`.

        Args:
            query: (B, T, dim).
            key: (B, S, key_dim).
            value: (B, S, value_dim).
            keep: (B, S) bool, or pairwise (B, T, S) if the mechanism's row says so; True = may be attended to.

        Returns:
            (B, T, dim); the output projection of zeros where a query has nothing to attend to.
        """
        q = split_heads(self.query(query), self.num_heads)  # (B, H, T, D)
        k = split_heads(self.key(key), self.num_heads)  # (B, H, S, D)
        v = split_heads(self.value(value), self.num_heads)  # (B, H, S, D)
        x: Tensor = self.out(merge_heads(self.attend(q, k, v, keep, None)))  # (B, T, C)
        return x
