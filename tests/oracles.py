"""Slow, plain truth: what models/ must compute, in float64 loops over rows, heads, queries and keys.

Nothing here is imported from Ferry. No oracle knows padding: where a row has five tokens, it computes with five.
"""

import math

import torch
from torch import Tensor


def attention_weights(
    q: Tensor, k: Tensor, *, keep: Tensor | None = None, bias: Tensor | None = None, causal: bool = False
) -> Tensor:
    """q (B, H, T, D), k (B, H, S, D), keep (B, S) or (B, T, S), bias (1 or B, H, T, S) -> (B, H, T, S)."""
    (batch, heads, queries, width), keys = q.shape, k.shape[2]
    weights = torch.zeros(batch, heads, queries, keys, dtype=torch.float64)
    for b in range(batch):
        for h in range(heads):
            for t in range(queries):
                scores = {}
                for s in range(keys):
                    if causal and s > t:
                        continue
                    if keep is not None and not bool(keep[b, s] if keep.dim() == 2 else keep[b, t, s]):
                        continue
                    score = sum(float(q[b, h, t, d]) * float(k[b, h, s, d]) for d in range(width)) / math.sqrt(width)
                    if bias is not None:
                        score += float(bias[b if bias.shape[0] > 1 else 0, h, t, s])
                    scores[s] = math.exp(score)
                total = sum(scores.values())
                for s, value in scores.items():
                    weights[b, h, t, s] = value / total
    return weights


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    keep: Tensor | None = None,
    bias: Tensor | None = None,
    causal: bool = False,
) -> Tensor:
    """As `attention_weights`, and v (B, H, S, Dv) -> (B, H, T, Dv). The oracle of `full` and of `sdpa`."""
    weights = attention_weights(q, k, keep=keep, bias=bias, causal=causal)
    batch, heads, queries, keys = weights.shape
    out = torch.zeros(batch, heads, queries, v.shape[3], dtype=torch.float64)
    for b in range(batch):
        for h in range(heads):
            for t in range(queries):
                for s in range(keys):
                    out[b, h, t] += weights[b, h, t, s] * v[b, h, s].double()
    return out


def sinusoid(position: int, channel: int, dim: int) -> float:
    """One cell of the table of sinusoidal positions."""
    angle = position / 10000 ** (2 * (channel // 2) / dim)
    return math.sin(angle) if channel % 2 == 0 else math.cos(angle)


def linear(x: Tensor, weights: dict[str, Tensor], name: str) -> Tensor:
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def layer_norm(x: Tensor, weights: dict[str, Tensor], name: str) -> Tensor:
    centred = x - x.sum(dim=-1, keepdim=True) / x.shape[-1]
    variance = (centred * centred).sum(dim=-1, keepdim=True) / x.shape[-1]
    return centred / torch.sqrt(variance + 1e-5) * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def activate(x: Tensor, activation: str) -> Tensor:
    if activation == "relu":
        return torch.where(x > 0, x, torch.zeros_like(x))
    assert activation == "gelu"
    return x * (1 + torch.erf(x / math.sqrt(2))) / 2


def self_attention(x: Tensor, weights: dict[str, Tensor], name: str, *, num_heads: int, causal: bool) -> Tensor:
    """(n, C) -> (n, C), for the n tokens of one row."""
    length, dim = x.shape
    width = dim // num_heads
    qkv = linear(x, weights, f"{name}.qkv")
    mixed = torch.zeros_like(x)
    for h in range(num_heads):
        q, k, v = (qkv[:, part * dim + h * width : part * dim + (h + 1) * width] for part in range(3))
        for t in range(length):
            seen = t + 1 if causal else length
            exponentials = [math.exp(float(q[t] @ k[s]) / math.sqrt(width)) for s in range(seen)]
            for s in range(seen):
                mixed[t, h * width : (h + 1) * width] += exponentials[s] / sum(exponentials) * v[s]
    return linear(mixed, weights, f"{name}.out")


def encoder_row(ids: list[int], weights: dict[str, Tensor], config: dict[str, object]) -> Tensor:
    """The encoder on the kept tokens of one row: n ids -> (n, C) float64.

    Args:
        ids: the kept tokens, in order.
        weights: an Encoder's state_dict.
        config: its EncoderConfig as a dict; attention `full` or `sdpa`.
    """
    weights = {name: tensor.double() for name, tensor in weights.items()}
    dim, num_heads, causal, activation = (config[key] for key in ("dim", "num_heads", "causal", "activation"))
    assert isinstance(dim, int)
    assert isinstance(num_heads, int)
    assert isinstance(causal, bool)
    assert isinstance(activation, str)

    x = torch.zeros(len(ids), dim, dtype=torch.float64)
    for t, token in enumerate(ids):
        x[t] = weights["embedding.weight"][token]
        if config["position"] == "sinusoidal":
            x[t] *= math.sqrt(dim)
            x[t] += torch.tensor([sinusoid(t, channel, dim) for channel in range(dim)], dtype=torch.float64)
        elif config["position"] == "learned":
            x[t] += weights["position.embedding.weight"][t]
        else:
            assert config["position"] == "none"

    layer = 0
    while f"blocks.{layer}.attention.qkv.weight" in weights:
        name = f"blocks.{layer}"

        def attend(x: Tensor, name: str = name) -> Tensor:
            return self_attention(x, weights, f"{name}.attention", num_heads=num_heads, causal=causal)

        def feed(x: Tensor, name: str = name) -> Tensor:
            hidden = activate(linear(x, weights, f"{name}.feed_forward.up"), activation)
            return linear(hidden, weights, f"{name}.feed_forward.down")

        if config["norm"] == "pre":
            x = x + attend(layer_norm(x, weights, f"{name}.attention_norm"))
            x = x + feed(layer_norm(x, weights, f"{name}.feed_forward_norm"))
        else:
            x = layer_norm(x + attend(x), weights, f"{name}.attention_norm")
            x = layer_norm(x + feed(x), weights, f"{name}.feed_forward_norm")
        layer += 1
    return layer_norm(x, weights, "norm") if config["norm"] == "pre" else x


def pool_row(x: Tensor, pooling: str) -> Tensor:
    """The kept tokens of one row (n, C) -> (C,), or (2C,) for mean_max; zeros where n is 0."""
    if pooling == "mean_max":
        return torch.cat((pool_row(x, "mean"), pool_row(x, "max")))
    pooled = torch.zeros(x.shape[1], dtype=x.dtype)
    for channel in range(x.shape[1]):
        column = [float(value) for value in x[:, channel]]
        if column:
            pooled[channel] = {"first": column[0], "mean": sum(column) / len(column), "max": max(column)}[pooling]
    return pooled


def classify_row(ids: list[int], weights: dict[str, Tensor], config: dict[str, object], pooling: str) -> Tensor:
    """The text classifier on the kept tokens of one row -> (num_labels,) float64. `weights` is its state_dict."""
    return _head(pool_row(_encode(ids, weights, config), pooling), weights, config)


def tag_row(ids: list[int], weights: dict[str, Tensor], config: dict[str, object]) -> Tensor:
    """The token tagger on the kept tokens of one row -> (tokens, num_labels) float64. `weights` is its state_dict."""
    rows = [_head(vector, weights, config) for vector in _encode(ids, weights, config)]
    return torch.stack(rows) if rows else torch.empty(0, 0, dtype=torch.float64)


def _encode(ids: list[int], weights: dict[str, Tensor], config: dict[str, object]) -> Tensor:
    prefix = "encoder."
    inner = {name.removeprefix(prefix): tensor for name, tensor in weights.items() if name.startswith(prefix)}
    return encoder_row(ids, inner, config)


def _head(vector: Tensor, weights: dict[str, Tensor], config: dict[str, object]) -> Tensor:
    weights = {name: tensor.double() for name, tensor in weights.items()}
    if "head.4.weight" not in weights:
        return linear(vector, weights, "head.1")
    hidden = activate(linear(vector, weights, "head.1"), str(config["activation"]))
    return linear(hidden, weights, "head.4")
