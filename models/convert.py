"""Weights from one layout into another: fused and separate projections, and PyTorch's own layers.

Every function copies values and never rounds, so a round trip gives the same bits. The mode, train or eval, is kept.

Cost: one copy of each parameter.
Does not support nn.MultiheadAttention with add_bias_kv or add_zero_attn, nor nn.TransformerEncoderLayer without biases
or with an activation that ACTIVATIONS lacks. PyTorch's dropout on attention weights and inside the feed-forward has no
counterpart here: with dropout on, the layers differ.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.attention.sdpa import SDPAttention
from models.block import NORMS, Block
from models.feed_forward import ACTIVATIONS, FeedForward
from models.multi_head_attention import MultiHeadAttention
from models.position.none import NoPosition
from models.self_attention import SelfAttention


def fuse_qkv(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Stack three weights (C, C_in), or three biases (C,), into one of 3C rows: queries, keys, values."""
    return torch.cat((query, key, value))  # (3C, C_in)


def split_qkv(fused: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Cut a fused weight (3C, C_in), or bias (3C,), into its three parts. The inverse of `fuse_qkv`."""
    query, key, value = fused.chunk(3)  # (C, C_in)
    return query, key, value


@torch.no_grad()
def separate(layer: SelfAttention) -> MultiHeadAttention:
    """The same self-attention with three projections; it takes rectangles, and x three times.

    The layer's position is left behind: a rotation has no place in MultiHeadAttention.
    """
    dim = layer.out.in_features
    bias = layer.qkv.bias is not None
    separated = MultiHeadAttention(dim, layer.num_heads, bias=bias, attend=layer.attend).to(layer.out.weight)
    parts = (separated.query, separated.key, separated.value)
    for part, weight in zip(parts, split_qkv(layer.qkv.weight), strict=True):
        part.weight.copy_(weight)
    if bias:
        for part, vector in zip(parts, split_qkv(layer.qkv.bias), strict=True):
            part.bias.copy_(vector)
    separated.out.load_state_dict(layer.out.state_dict())
    return separated.train(layer.training)


@torch.no_grad()
def fuse(layer: MultiHeadAttention) -> SelfAttention:
    """The same attention of a sequence to itself, with one fused projection. The inverse of `separate`.

    Raises:
        ValueError: if keys or values come from another width than queries, so that they can't share one matmul.
    """
    dim = layer.out.in_features
    if (layer.key.in_features, layer.value.in_features) != (dim, dim):
        raise ValueError(
            f"only projections of one width can be fused; got queries {dim}, keys {layer.key.in_features}, values "
            f"{layer.value.in_features}. Keep them separate."
        )
    bias = layer.query.bias is not None
    fused = SelfAttention(dim, layer.num_heads, attend=layer.attend, position=NoPosition(), bias=bias).to(
        layer.out.weight
    )
    fused.qkv.weight.copy_(fuse_qkv(layer.query.weight, layer.key.weight, layer.value.weight))
    if bias:
        fused.qkv.bias.copy_(fuse_qkv(layer.query.bias, layer.key.bias, layer.value.bias))
    fused.out.load_state_dict(layer.out.state_dict())
    return fused.train(layer.training)


@torch.no_grad()
def multi_head_from_torch(source: nn.MultiheadAttention, *, attend: nn.Module | None = None) -> MultiHeadAttention:
    """The same function as a layer of PyTorch's, weights and biases copied.

    Args:
        source: any but one built with add_bias_kv or add_zero_attn.
        attend: the mechanism to plug in; SDPA if None.

    Raises:
        ValueError: if the layer adds keys of its own.
    """
    if source.bias_k is not None or source.add_zero_attn:
        raise ValueError(
            "nn.MultiheadAttention with add_bias_kv or add_zero_attn has no counterpart; build it without."
        )
    bias = source.in_proj_bias is not None
    layer = MultiHeadAttention(
        source.embed_dim, source.num_heads, key_dim=source.kdim, value_dim=source.vdim, bias=bias, attend=attend
    ).to(source.out_proj.weight)
    parts = (layer.query, layer.key, layer.value)
    weights = (
        split_qkv(source.in_proj_weight)
        if source.in_proj_weight is not None
        else (source.q_proj_weight, source.k_proj_weight, source.v_proj_weight)
    )
    for part, weight in zip(parts, weights, strict=True):
        part.weight.copy_(weight)
    if bias:
        for part, vector in zip(parts, split_qkv(source.in_proj_bias), strict=True):
            part.bias.copy_(vector)
    layer.out.load_state_dict(source.out_proj.state_dict())
    return layer.train(source.training)


@torch.no_grad()
def block_from_torch(source: nn.TransformerEncoderLayer, *, causal: bool = False) -> Block:
    """The same function as an encoder layer of PyTorch's, weights, biases and epsilons copied.

    Args:
        source: pre-norm or post-norm, with biases and one of ACTIVATIONS.
        causal: whether the block sees no later token; PyTorch takes that as a mask at every call.

    Raises:
        ValueError: if the layer has no biases or another activation.
    """
    activations = {F.relu: "relu", F.gelu: "gelu"}
    activation = activations.get(source.activation)
    if activation is None:
        raise ValueError(f"the activation {source.activation} has no counterpart; use one of {', '.join(ACTIVATIONS)}.")
    if source.linear1.bias is None:
        raise ValueError("nn.TransformerEncoderLayer with bias=False has no counterpart; build it with biases.")
    attention = fuse(multi_head_from_torch(source.self_attn, attend=SDPAttention(causal=causal)))
    feed_forward = FeedForward(
        source.linear1.in_features, source.linear1.out_features, activation=ACTIVATIONS[activation].build()
    )
    feed_forward.up.load_state_dict(source.linear1.state_dict())
    feed_forward.down.load_state_dict(source.linear2.state_dict())
    block = NORMS["pre" if source.norm_first else "post"].build(
        source.linear1.in_features, attention=attention, feed_forward=feed_forward, dropout=source.dropout1.p
    )
    for norm, original in ((block.attention_norm, source.norm1), (block.feed_forward_norm, source.norm2)):
        norm.load_state_dict(original.state_dict())
        norm.eps = original.eps
    return block.to(source.linear1.weight).train(source.training)
