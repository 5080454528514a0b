"""T5 and mT5 for the lean engine: norms without mean, gated inner layers, and relative positions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from methods.decoding.engine.layers import numbers

TYPES = ("T5ForConditionalGeneration", "MT5ForConditionalGeneration")


class RelativeBias:
    """Attention biases by distance (Raffel et al., 2020, section 2.1), shared by the layers of a stack."""

    def __init__(self, stack: Any) -> None:
        attention = stack.block[0].layer[0].SelfAttention
        self._attention, self._both_ways = attention, not attention.is_decoder
        self._reach = 0
        self._table = torch.empty(0)
        self._grow(128)

    def _grow(self, reach: int) -> None:
        """Extend the table to distances -reach to reach."""
        attention, weight = self._attention, self._attention.relative_attention_bias.weight
        buckets = attention._relative_position_bucket(
            torch.arange(-reach, reach + 1, device=weight.device), bidirectional=self._both_ways,
            num_buckets=attention.relative_attention_num_buckets,
            max_distance=attention.relative_attention_max_distance,
        )  # fmt: skip
        self._table, self._reach = numbers(weight)[buckets].t().contiguous(), reach

    def __call__(self, queries: torch.Tensor, keys: int) -> torch.Tensor:
        """Additive [..., heads, q, keys] for queries at positions int64 [..., q] and keys at 0 to keys - 1."""
        distances = torch.arange(keys, device=queries.device) - queries[..., None]
        furthest = max(int(queries.max()), keys)
        if furthest > self._reach:
            self._grow(2 * furthest)
        bias = self._table[:, distances + self._reach]  # [heads, ..., q, keys]
        return bias.movedim(0, -3)


def stack_of(stack: Any) -> Any:
    """A T5 stack with the attribute names of Marian's."""
    return SimpleNamespace(
        embed_tokens=stack.embed_tokens, embed_positions=None, embed_scale=1.0, layer_norm=stack.final_layer_norm,
        layers=[_layer(block) for block in stack.block],
    )  # fmt: skip


def _layer(block: Any) -> Any:
    own, *source, inner = block.layer
    feed = inner.DenseReluDense
    first = (feed.wi_0, feed.wi_1) if hasattr(feed, "wi_0") else feed.wi
    found = SimpleNamespace(
        self_attn=_attention(own.SelfAttention), self_attn_layer_norm=own.layer_norm, fc1=first, fc2=feed.wo,
        activation_fn=feed.act, final_layer_norm=inner.layer_norm,
    )  # fmt: skip
    if source:
        found.encoder_attn = _attention(source[0].EncDecAttention)
        found.encoder_attn_layer_norm = source[0].layer_norm
    return found


def _attention(attention: Any) -> Any:
    return SimpleNamespace(
        q_proj=attention.q, k_proj=attention.k, v_proj=attention.v, out_proj=attention.o, num_heads=attention.n_heads
    )
