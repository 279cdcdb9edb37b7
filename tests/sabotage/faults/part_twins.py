"""Twins of the model's parts: attention, blocks, encoder, pooling, activation; the weights keep names and places."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.attention.sdpa import SDPAttention
from models.block import PreNormBlock
from models.encoder import Encoder
from models.masks import broadcast_keep, open_empty_rows
from models.packing import Packing
from models.pooling import MeanMaxPooling, max_over_tokens, mean_over_tokens
from models.position.sinusoidal import SinusoidalPosition
from tests.sabotage.tools import disguise_all


class Attend(SDPAttention):
    """Has the genuine attention with a scale of one's choice and keys and queries in one's own order."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, keep: Tensor, scale: float) -> Tensor:
        opened, empty = open_empty_rows(keep[:, None, None, :])
        opened = opened.expand(q.size(0), 1, q.size(2), k.size(2))
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=opened, scale=scale)
        return out.masked_fill(empty, 0.0)


class QueryAndKeySwapped(Attend):
    def forward(self, q: Tensor, k: Tensor, v: Tensor, keep: Tensor, bias: Tensor | None) -> Tensor:
        return self.attend(k, q, v, keep, q.size(-1) ** -0.5)


class ScaleNotRooted(Attend):
    """Divides by D instead of √D."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, keep: Tensor, bias: Tensor | None) -> Tensor:
        return self.attend(q, k, v, keep, 1.0 / q.size(-1))


class ScaleOfTheWidth(Attend):
    """Divides by √C instead of √D: the scale of a single head."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, keep: Tensor, bias: Tensor | None) -> Tensor:
        return self.attend(q, k, v, keep, (q.size(-1) * q.size(1)) ** -0.5)


class HeadsPermuted(Attend):
    def forward(self, q: Tensor, k: Tensor, v: Tensor, keep: Tensor, bias: Tensor | None) -> Tensor:
        return self.attend(q, k, v, keep, q.size(-1) ** -0.5).flip(1)


class KeysUnmasked(SDPAttention):
    """Attends to padding as well."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, keep: Tensor, bias: Tensor | None) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v)


class FiniteMask(SDPAttention):
    """Adds −1e20 to masked scores: the same in float32, infinite in half precision."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, keep: Tensor, bias: Tensor | None) -> Tensor:
        opened, empty = open_empty_rows(keep[:, None, None, :])
        opened = opened.expand(q.size(0), 1, q.size(2), k.size(2))
        added = torch.zeros_like(opened, dtype=q.dtype).masked_fill(~opened, -1e20)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=added).masked_fill(empty, 0.0)


class WeakMask(SDPAttention):
    """Adds −10 to masked scores, so that a little of the padding comes through."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, keep: Tensor, bias: Tensor | None) -> Tensor:
        opened, empty = open_empty_rows(keep[:, None, None, :])
        opened = opened.expand(q.size(0), 1, q.size(2), k.size(2))
        added = torch.zeros_like(opened, dtype=q.dtype).masked_fill(~opened, -10.0)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=added).masked_fill(empty, 0.0)


class Window(SDPAttention):
    """Sees the neighbours within five tokens only."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, keep: Tensor, bias: Tensor | None) -> Tensor:
        places = torch.arange(q.size(2), device=q.device)
        near = (places[:, None] - places[None, :]).abs() <= 5
        mask = broadcast_keep(keep, False, q, k)
        assert mask is not None
        opened, empty = open_empty_rows(mask & near[None, None])
        opened = opened.expand(q.size(0), 1, q.size(2), k.size(2))
        return F.scaled_dot_product_attention(q, k, v, attn_mask=opened).masked_fill(empty, 0.0)


class ResidualDropped(PreNormBlock):
    def forward(self, x: Tensor, packing: Packing, bias: Tensor | None) -> Tensor:
        x = x + self.dropout(self.attention(self.attention_norm(x), packing, bias))
        return self.dropout(self.feed_forward(self.feed_forward_norm(x)))


class NormAfter(PreNormBlock):
    """The order of post-norm with the weights of pre-norm."""

    def forward(self, x: Tensor, packing: Packing, bias: Tensor | None) -> Tensor:
        x = self.attention_norm(x + self.dropout(self.attention(x, packing, bias)))
        return self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))


class PartsSwapped(PreNormBlock):
    """Feed-forward first."""

    def forward(self, x: Tensor, packing: Packing, bias: Tensor | None) -> Tensor:
        x = x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        return x + self.dropout(self.attention(self.attention_norm(x), packing, bias))


class LayerSkipped(Encoder):
    def encode(self, ids: Tensor, packing: Packing) -> Tensor:
        x = self.position.add(self.embedding(ids) * self.scale, packing.position)
        for number, block in enumerate(self.blocks):
            if number != 1:
                x = block(x, packing, None)
        return self.norm(x)


class LayerTwice(Encoder):
    def encode(self, ids: Tensor, packing: Packing) -> Tensor:
        x = self.position.add(self.embedding(ids) * self.scale, packing.position)
        for block in self.blocks:
            x = block(x, packing, None)
        x = self.blocks[1](x, packing, None)
        return self.norm(x)


class LayersReversed(Encoder):
    def encode(self, ids: Tensor, packing: Packing) -> Tensor:
        x = self.position.add(self.embedding(ids) * self.scale, packing.position)
        x = self.blocks[1](x, packing, None)
        x = self.blocks[0](x, packing, None)
        return self.norm(x)


class NormTwice(Encoder):
    def encode(self, ids: Tensor, packing: Packing) -> Tensor:
        x = self.position.add(self.embedding(ids) * self.scale, packing.position)
        for block in self.blocks:
            x = block(x, packing, None)
        return self.norm(self.norm(x))


class WithoutPositions(Encoder):
    def encode(self, ids: Tensor, packing: Packing) -> Tensor:
        x = self.embedding(ids) * self.scale
        for block in self.blocks:
            x = block(x, packing, None)
        return self.norm(x)


class PositionsOfColumns(Encoder):
    """Counts columns instead of kept tokens, as models do that were made for padding on the right."""

    def encode(self, ids: Tensor, packing: Packing) -> Tensor:
        x = self.position.add(self.embedding(ids) * self.scale, packing.source % packing.home.size(1))
        for block in self.blocks:
            x = block(x, packing, None)
        return self.norm(x)


class PositionsOffByOne(SinusoidalPosition):
    def add(self, x: Tensor, index: Tensor) -> Tensor:
        return x + self.table.index_select(0, (index + 1).clamp(max=self.table.size(0) - 1))


class LastPositionWrong(SinusoidalPosition):
    """Wrong at the very last position only."""

    def add(self, x: Tensor, index: Tensor) -> Tensor:
        return x + self.table.index_select(0, index.clamp(max=self.table.size(0) - 2))


class MeanOverAllColumns(MeanMaxPooling):
    """Divides by T and not by the number of tokens."""

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        mean = x.masked_fill(~keep[:, :, None], 0.0).mean(dim=1)
        return torch.cat((mean, max_over_tokens(x, keep)), dim=1)


class MaxOverPadding(MeanMaxPooling):
    """Lets the zeros at padding into the maximum."""

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        return torch.cat((mean_over_tokens(x, keep), x.amax(dim=1)), dim=1)


class MaxThenMean(MeanMaxPooling):
    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        return torch.cat((max_over_tokens(x, keep), mean_over_tokens(x, keep)), dim=1)


class MeanWithoutSpecials(MeanMaxPooling):
    """Leaves the first token, cls, out of the mean."""

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        rest = keep & (torch.arange(keep.size(1), device=keep.device)[None, :] > 0)
        return torch.cat((mean_over_tokens(x, rest), max_over_tokens(x, keep)), dim=1)


class EmptyMeanIsNaN(MeanMaxPooling):
    """Divides by the number of tokens, be it none."""

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        mean = x.masked_fill(~keep[:, :, None], 0.0).sum(dim=1) / keep.sum(dim=1, keepdim=True)
        return torch.cat((mean, max_over_tokens(x, keep)), dim=1)


class QuickGelu(nn.Module):
    """x·σ(1.702 x), as in some public checkpoints."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(1.702 * x)


for _parent, _genuine in (
    (Attend, SDPAttention),
    (SDPAttention, SDPAttention),
    (PreNormBlock, PreNormBlock),
    (Encoder, Encoder),
    (SinusoidalPosition, SinusoidalPosition),
    (MeanMaxPooling, MeanMaxPooling),
):
    disguise_all(_parent, _genuine)
