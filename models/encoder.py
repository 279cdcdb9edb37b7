"""The encoder: token ids and a mask in, one vector a token out.

Cost: O(N·C·(C + F)) time a layer, and the mechanism's cost on the (B, L) rectangle.
Does not support lengths above max_len or ids outside the vocabulary: loaders refuse them before they come here.
"""

import math
from typing import Final

from torch import Tensor, nn

from models.attention import ATTENTIONS
from models.block import NORMS
from models.config import EncoderConfig
from models.feed_forward import ACTIVATIONS, FeedForward
from models.packing import Packing, pack, plan_packing, unpack
from models.position import POSITIONS
from models.position.base import Position
from models.position.none import NoPosition
from models.self_attention import SelfAttention


class Encoder(nn.Module):
    """Embeddings, positions and a stack of blocks.

    Source: "Attention Is All You Need", sections 3.1 and 3.4 (embeddings times √C, where positions are fixed waves).
    """

    scale: Final[float]

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        scaled = POSITIONS[config.position].scaled
        self.scale = math.sqrt(config.dim) if scaled else 1.0
        self.embedding = nn.Embedding(config.vocab_size, config.dim)
        self.position: Position = POSITIONS[config.position].build(config)
        self.dropout = nn.Dropout(config.dropout)
        in_layers = self.position if POSITIONS[config.position].verb == "rotate" else NoPosition()
        self.blocks = nn.ModuleList(
            NORMS[config.norm].build(
                config.dim,
                attention=SelfAttention(
                    config.dim, config.num_heads, attend=ATTENTIONS[config.attention].build(config), position=in_layers
                ),
                feed_forward=FeedForward(
                    config.dim, config.hidden_dim, activation=ACTIVATIONS[config.activation].build()
                ),
                dropout=config.dropout,
            )
            for _ in range(config.num_layers)
        )
        self.norm = NORMS[config.norm].final(config.dim)
        self.apply(init_linear)
        # With the scale a token has the variance of a wave, without it that of a learned position (as in BERT's code).
        nn.init.normal_(self.embedding.weight, std=config.dim**-0.5 if scaled else 0.02)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """One vector a token, where the token stood.

        Args:
            input_ids: (B, T) int64, 1 ≤ T ≤ max_len, each 0 … vocab_size − 1.
            attention_mask: (B, T) int64, 1 at a token and 0 at padding, in any pattern.

        Returns:
            (B, T, C); zeros at padding.

        Raises:
            ValueError: if attention_mask is not two-dimensional.
        """
        packing = plan_packing(attention_mask)
        x = self.encode(pack(input_ids, packing.source), packing)  # (N, C)
        return unpack(x, packing.home, attention_mask != 0)  # (B, T, C)

    def encode(self, ids: Tensor, packing: Packing) -> Tensor:
        """The same on packed tokens: ids (N,) int64 -> (N, C)."""
        x = self.embedding(ids) * self.scale  # (N, C)
        x = self.dropout(self.position.add(x, packing.position))
        bias = self.position.bias(packing.column)
        for block in self.blocks:
            x = block(x, packing, bias)
        out: Tensor = self.norm(x)
        return out


def init_linear(module: nn.Module) -> None:
    """Glorot-uniform weights and zero biases, for use with `nn.Module.apply`.

    Source: "Understanding the difficulty of training deep feedforward neural networks", equation 16, as in
    `nn.Transformer`.
    """
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
