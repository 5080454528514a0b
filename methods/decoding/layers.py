"""The layers of the post-norm encoder-decoder Transformer (Vaswani et al., 2017), as functions of packed tokens [N, d].

They read the weights of the Marian and BART classes of `transformers`, which are the tested reference. What is left out
is what decoding does not need: dropout, masks made in every layer, module hooks, output records.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as functional

from methods.decoding.dense import Dense
from methods.decoding.ragged import Ragged


class Norm:
    """Layer normalisation over the last axis."""

    __slots__ = ("bias", "eps", "shape", "weight")

    def __init__(self, module: torch.nn.LayerNorm) -> None:
        self.shape, self.weight, self.bias, self.eps = module.normalized_shape, module.weight, module.bias, module.eps

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return torch.layer_norm(x, self.shape, self.weight, self.bias, self.eps)


class FeedForward:
    """x -> norm(x + fc2(activation(fc1(x))))."""

    __slots__ = ("activation", "first", "norm", "second")

    def __init__(self, layer: Any) -> None:
        self.first, self.second = Dense.of(layer.fc1), Dense.of(layer.fc2)
        self.activation = layer.activation_fn
        self.norm = Norm(layer.final_layer_norm)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x + self.second(self.activation(self.first(x))))


class Attended:
    """What follows attention in every sub-layer: norm(x + out(attended))."""

    __slots__ = ("norm", "out")

    def __init__(self, attention: Any, norm: torch.nn.LayerNorm) -> None:
        self.out, self.norm = Dense.of(attention.out_proj), Norm(norm)

    def __call__(self, x: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        return self.norm(x + self.out(attended))


class EncoderLayer:
    """Self-attention in both directions, then the feed-forward layer."""

    __slots__ = ("attended", "feed_forward", "heads", "qkv")

    def __init__(self, layer: Any) -> None:
        attention = layer.self_attn
        self.heads = attention.num_heads
        self.qkv = Dense.of(attention.q_proj, attention.k_proj, attention.v_proj)
        self.attended = Attended(attention, layer.self_attn_layer_norm)
        self.feed_forward = FeedForward(layer)

    def __call__(self, x: torch.Tensor, rows: Ragged, mask: torch.Tensor | None) -> torch.Tensor:
        """x: [N, d]. mask: see `bidirectional`."""
        return self.feed_forward(self.attended(x, bidirectional(self.qkv(x), rows, self.heads, mask)))


def bidirectional(qkv: torch.Tensor, rows: Ragged, heads: int, mask: torch.Tensor | None) -> torch.Tensor:
    """Attention [N, d] of every token to all tokens of its row. qkv: [N, 3 d]; mask: of `rows`."""
    padded = rows.pad(qkv).view(len(rows.counts), rows.longest, 3, heads, -1)
    query, key, value = padded.permute(2, 0, 3, 1, 4).unbind(0)
    mixed = functional.scaled_dot_product_attention(query, key, value, mask)
    return rows.pack(mixed.transpose(1, 2).reshape(len(rows.counts), rows.longest, -1))


class DecoderLayer:
    """Self-attention, attention over the source, the feed-forward layer.

    The session runs attention itself, because the cache and the sources are the session's.
    """

    __slots__ = ("attended", "attended_source", "feed_forward", "qkv", "source_kv", "source_query")

    def __init__(self, layer: Any) -> None:
        own, source = layer.self_attn, layer.encoder_attn
        self.qkv = Dense.of(own.q_proj, own.k_proj, own.v_proj)
        self.attended = Attended(own, layer.self_attn_layer_norm)
        self.source_query = Dense.of(source.q_proj)
        self.source_kv = Dense.of(source.k_proj, source.v_proj)
        self.attended_source = Attended(source, layer.encoder_attn_layer_norm)
        self.feed_forward = FeedForward(layer)


class Embedding:
    """Token plus position embeddings, normalised where the model does (BART). offset: row of position 0 (BART: 2)."""

    __slots__ = ("norm", "offset", "positions", "scale", "table")

    def __init__(self, stack: Any) -> None:
        self.table = stack.embed_tokens.weight
        self.scale = float(getattr(stack, "embed_scale", getattr(stack.embed_tokens, "embed_scale", 1.0)))
        self.positions = stack.embed_positions.weight
        self.offset = int(getattr(stack.embed_positions, "offset", 0))
        norm = getattr(stack, "layernorm_embedding", None)
        self.norm = Norm(norm) if norm is not None else None

    def __call__(self, ids: torch.Tensor, rows: Ragged) -> torch.Tensor:
        """Embeddings [N, d] of rows that begin at position 0 (ids: int64 [N])."""
        return self.block(ids, len(rows.counts), 0) if rows.uniform else self.scattered(ids, rows.slot)

    def block(self, ids: torch.Tensor, rows: int, start: int) -> torch.Tensor:
        """Embeddings [rows * t, d] of t tokens a row (ids: int64 [rows * t]), all rows from position `start` on."""
        tokens = functional.embedding(ids, self.table)
        each = len(ids) // rows
        places = self.positions[self.offset + start : self.offset + start + each]
        return self._finish(tokens, places if rows == 1 or each == 1 else places.repeat(rows, 1))

    def scattered(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Embeddings [N, d] of tokens at positions of their own; both int64 [N]."""
        return self._finish(functional.embedding(ids, self.table), self.positions[positions + self.offset])

    def _finish(self, tokens: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        x = tokens + places if self.scale == 1.0 else torch.add(places, tokens, alpha=self.scale)
        return x if self.norm is None else self.norm(x)
