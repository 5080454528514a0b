"""The layers of the encoder-decoder Transformer (Vaswani et al., 2017), as functions of packed tokens [N, d].

They read the weights of Marian, BART and similar models in `transformers`, which are the tested reference. They leave
out what decoding does not need: dropout, masks made in every layer, module hooks, output records.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as functional

from methods.decoding.engine.dense import Dense
from methods.decoding.engine.ragged import Ragged


class Norm:
    """Layer normalisation over the last axis."""

    __slots__ = ("bias", "eps", "shape", "weight")

    def __init__(self, module: torch.nn.LayerNorm) -> None:
        self.shape, self.weight, self.bias, self.eps = module.normalized_shape, module.weight, module.bias, module.eps

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return torch.layer_norm(x, self.shape, self.weight, self.bias, self.eps)


class RootNorm:
    """Division by the root mean square over the last axis."""

    __slots__ = ("eps", "weight")

    def __init__(self, module: Any) -> None:
        self.weight, self.eps = module.weight, module.variance_epsilon

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if x.dtype == torch.float32:
            return torch.rms_norm(x, self.weight.shape, self.weight, self.eps)
        spread = x.float().square().mean(-1, keepdim=True)  # always in float32, as in T5
        scaled: torch.Tensor = self.weight * (x * torch.rsqrt(spread + self.eps)).to(self.weight.dtype)
        return scaled


def norm_of(module: Any) -> Norm | RootNorm:
    """The norm of a module."""
    return Norm(module) if isinstance(module, torch.nn.LayerNorm) else RootNorm(module)


class Residual:
    """The residual around a sub-layer f: norm(x + f(x)), or x + f(norm(x)) if the norm comes first (`pre`)."""

    __slots__ = ("norm", "pre")

    def __init__(self, norm: Any, pre: bool) -> None:
        self.norm, self.pre = norm_of(norm), pre

    def read(self, x: torch.Tensor) -> torch.Tensor:
        """The sub-layer's input."""
        return self.norm(x) if self.pre else x

    def add(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """x plus the sub-layer's output y."""
        return x + y if self.pre else self.norm(x + y)


class FeedForward:
    """fc2(activation(fc1(x)))."""

    __slots__ = ("activation", "first", "residual", "second")

    def __init__(self, layer: Any, pre: bool, eighth: bool = False) -> None:
        self.first, self.second = Dense.of(layer.fc1, eighth=eighth), Dense.of(layer.fc2, eighth=eighth)
        self.activation = layer.activation_fn
        self.residual = Residual(layer.final_layer_norm, pre)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.residual.add(x, self.second(self.activation(self.first(self.residual.read(x)))))


class EncoderLayer:
    """Self-attention in both directions, then the feed-forward layer."""

    __slots__ = ("feed_forward", "heads", "out", "qkv", "residual", "scale")

    def __init__(self, layer: Any, pre: bool, scale: float | None) -> None:
        attention = layer.self_attn
        self.heads, self.scale = attention.num_heads, scale
        self.qkv = Dense.of(attention.q_proj, attention.k_proj, attention.v_proj)
        self.out = Dense.of(attention.out_proj)
        self.residual = Residual(layer.self_attn_layer_norm, pre)
        self.feed_forward = FeedForward(layer, pre)

    def __call__(self, x: torch.Tensor, rows: Ragged, mask: torch.Tensor | None) -> torch.Tensor:
        """x: [N, d]. mask: see `bidirectional`."""
        attended = bidirectional(self.qkv(self.residual.read(x)), rows, self.heads, mask, self.scale)
        return self.feed_forward(self.residual.add(x, self.out(attended)))


def bidirectional(
    qkv: torch.Tensor, rows: Ragged, heads: int, mask: torch.Tensor | None, scale: float | None
) -> torch.Tensor:
    """Attention [N, d] of every token to all tokens of its row. qkv: [N, 3 d]; mask: of `rows`; scale: of scores; None:
    1 / sqrt(width of the keys)."""
    padded = rows.pad(qkv).view(len(rows.counts), rows.longest, 3, heads, -1)
    query, key, value = padded.permute(2, 0, 3, 1, 4).unbind(0)
    mixed = functional.scaled_dot_product_attention(query, key, value, mask, scale=scale)
    return rows.pack(mixed.transpose(1, 2).reshape(len(rows.counts), rows.longest, -1))


class DecoderLayer:
    """Self-attention, attention over the source, the feed-forward layer.

    The session runs attention itself, because the cache and the sources are the session's.
    """

    __slots__ = ("feed_forward", "out", "qkv", "residual", "source_kv", "source_out", "source_query", "source_residual")

    def __init__(self, layer: Any, pre: bool, eighth: bool = False) -> None:
        own, source = layer.self_attn, layer.encoder_attn
        self.qkv = Dense.of(own.q_proj, own.k_proj, own.v_proj, eighth=eighth)
        self.out = Dense.of(own.out_proj, eighth=eighth)
        self.residual = Residual(layer.self_attn_layer_norm, pre)
        self.source_query = Dense.of(source.q_proj, eighth=eighth)
        self.source_out = Dense.of(source.out_proj, eighth=eighth)
        self.source_kv = Dense.of(source.k_proj, source.v_proj)
        self.source_residual = Residual(layer.encoder_attn_layer_norm, pre)
        self.feed_forward = FeedForward(layer, pre, eighth)


class Embedding:
    """Token plus position embeddings, normalised if the model does so (BART). offset: row of position 0 (BART: 2).
    positions: None if attention has them (T5).

    Padding tokens are embedded like any other.
    """

    __slots__ = ("norm", "offset", "positions", "scale", "table")

    def __init__(self, stack: Any) -> None:
        self.table = stack.embed_tokens.weight
        self.scale = float(getattr(stack, "embed_scale", getattr(stack.embed_tokens, "embed_scale", 1.0)))
        places = stack.embed_positions
        computed = getattr(places, "weights", None)  # sinusoids, not a parameter (M2M100)
        self.positions = getattr(places, "weight", None) if computed is None else computed
        self.offset = _first_row(places)
        norm = getattr(stack, "layernorm_embedding", None)
        self.norm = Norm(norm) if norm is not None else None

    def __call__(self, ids: torch.Tensor, rows: Ragged) -> torch.Tensor:
        """Embeddings [N, d] of rows that begin at position 0 (ids: int64 [N])."""
        return self.block(ids, len(rows.counts), 0) if rows.uniform else self.scattered(ids, rows.slot)

    def block(self, ids: torch.Tensor, rows: int, start: int) -> torch.Tensor:
        """Embeddings [rows * t, d] of t tokens per row (ids: int64 [rows * t]), from position `start` on."""
        tokens = functional.embedding(ids, self.table)
        if self.positions is None:
            return tokens
        each = len(ids) // rows
        places = self.positions[self.offset + start : self.offset + start + each]
        return self._finish(tokens, places if rows == 1 or each == 1 else places.repeat(rows, 1))

    def scattered(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Embeddings [N, d] of tokens at these positions; both int64 [N]."""
        tokens = functional.embedding(ids, self.table)
        return tokens if self.positions is None else self._finish(tokens, self.positions[positions + self.offset])

    def _finish(self, tokens: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        x = tokens + places if self.scale == 1.0 else torch.add(places, tokens, alpha=self.scale)
        return x if self.norm is None else self.norm(x)


def _first_row(places: Any) -> int:
    """Row of position 0 in a table of position embeddings."""
    if type(places).__name__ in ("SinusoidalPositionalEmbedding", "M2M100SinusoidalPositionalEmbedding"):
        return int(places.padding_idx) + 1  # as in fairseq
    return int(getattr(places, "offset", 0))
