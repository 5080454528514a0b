"""The layers of the Transformer (Vaswani et al., 2017), as functions of packed tokens [N, d].

They read the weights of Marian, BART and similar models in `transformers`, which are the tested reference. They leave
out what decoding does not need: dropout, masks made in every layer, module hooks, output records.

Of a model in bfloat16 on a CPU only products are in bfloat16 (`dense`): tokens [N, d], norms and attention are float32.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as functional

from methods.decoding.engine.dense import Dense
from methods.decoding.engine.kernels import normalise
from methods.decoding.engine.ragged import Ragged


def numbers(tensor: torch.Tensor) -> torch.Tensor:
    """A vector of weights in the type of the tokens."""
    tensor = tensor.detach()
    return tensor.float() if tensor.device.type == "cpu" and tensor.dtype == torch.bfloat16 else tensor


class Norm:
    """Layer normalisation over the last axis."""

    __slots__ = ("bias", "eps", "shape", "weight")

    def __init__(self, module: torch.nn.LayerNorm) -> None:
        self.shape, self.eps, self.weight = module.normalized_shape, module.eps, numbers(module.weight)
        self.bias = torch.zeros_like(self.weight) if module.bias is None else numbers(module.bias)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return torch.layer_norm(x, self.shape, self.weight, self.bias, self.eps)


class RootNorm:
    """Division by the root mean square over the last axis."""

    __slots__ = ("bias", "eps", "weight")

    def __init__(self, module: Any) -> None:
        self.weight, self.eps = numbers(module.weight), getattr(module, "variance_epsilon", None) or module.eps
        if type(module).__name__.startswith("Gemma"):
            self.weight = 1 + self.weight
        self.bias = torch.zeros_like(self.weight)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if x.dtype == torch.float32 and x.device.type == "cpu":  # torch's takes seven passes: 27 µs, and this 5
            rows = x.reshape(-1, x.shape[-1])
            done = normalise(rows.numpy(), self.weight.numpy(), self.bias.numpy(), self.eps, False)
            return torch.from_numpy(done).view(x.shape)
        if x.dtype == torch.float32:
            return torch.rms_norm(x, self.weight.shape, self.weight, self.eps)
        spread = x.float().square().mean(-1, keepdim=True)  # always in float32, as in T5
        scaled: torch.Tensor = self.weight * (x * torch.rsqrt(spread + self.eps)).to(self.weight.dtype)
        return scaled


def norm_of(module: Any) -> Norm | RootNorm | None:
    """The norm of a module; None if there is no module."""
    if module is None:
        return None
    return Norm(module) if isinstance(module, torch.nn.LayerNorm) else RootNorm(module)


class Residual:
    """The residual around a sub-layer f: of_sum(x + of_output(f(before(x)))), where each norm may be absent. `norm` is
    `before` if it comes first (`pre`), else `of_sum`; `after` is `of_output`."""

    __slots__ = ("before", "of_output", "of_sum")

    def __init__(self, norm: Any, pre: bool, after: Any = None) -> None:
        self.before, self.of_sum = norm_of(norm if pre else None), norm_of(None if pre else norm)
        self.of_output = norm_of(after)

    def read(self, x: torch.Tensor) -> torch.Tensor:
        """The sub-layer's input."""
        return x if self.before is None else self.before(x)

    def add(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """x plus the sub-layer's output y."""
        x = x + (y if self.of_output is None else self.of_output(y))
        return x if self.of_sum is None else self.of_sum(x)


class FeedForward:
    """fc2(activation(fc1(x))); with two layers in `fc1`, a gate and a value, fc2(activation(gate(x)) * value(x))."""

    __slots__ = ("activation", "first", "gated", "residual", "second")

    def __init__(self, layer: Any, pre: bool, int8: bool = False, bfloat16: bool = False) -> None:
        self.gated = isinstance(layer.fc1, tuple)
        self.first = Dense.of(*(layer.fc1 if self.gated else (layer.fc1,)), int8=int8, bfloat16=bfloat16)
        self.second = Dense.of(layer.fc2, int8=int8, bfloat16=bfloat16)
        self.activation = layer.activation_fn
        self.residual = Residual(layer.final_layer_norm, pre, getattr(layer, "final_after", None))

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        inner = self.first(self.residual.read(x))
        if self.gated:
            gate, value = inner.chunk(2, -1)
            inner = self.activation(gate) * value
        else:
            inner = self.activation(inner)
        return self.residual.add(x, self.second(inner))


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
    """Self-attention, attention over the source if there is one, the feed-forward layer.

    The session runs attention itself, because the cache and the sources are the session's. window: positions that a
    token sees; None: all. turned: the layer's table of rotations.
    """

    __slots__ = (
        "feed_forward", "key_norm", "out", "qkv", "query_norm", "residual", "source_kv", "source_out", "source_query",
        "source_residual", "turned", "window",
    )  # fmt: skip

    def __init__(self, layer: Any, pre: bool, int8: bool = False, bfloat16: bool = False) -> None:
        own, source = layer.self_attn, getattr(layer, "encoder_attn", None)
        several = own.projections if hasattr(own, "projections") else (own.q_proj, own.k_proj, own.v_proj)
        self.qkv = Dense.of(*several, int8=int8, bfloat16=bfloat16)
        self.out = Dense.of(own.out_proj, int8=int8, bfloat16=bfloat16)
        self.query_norm, self.key_norm = (norm_of(getattr(own, name, None)) for name in ("q_norm", "k_norm"))
        self.window, self.turned = getattr(own, "window", None), getattr(own, "turned", 0)
        self.residual = Residual(layer.self_attn_layer_norm, pre, getattr(layer, "self_attn_after", None))
        self.source_query = None
        if source is not None:
            self.source_query = Dense.of(source.q_proj, int8=int8, bfloat16=bfloat16)
            self.source_out = Dense.of(source.out_proj, int8=int8, bfloat16=bfloat16)
            self.source_kv = Dense.of(source.k_proj, source.v_proj)
            self.source_residual = Residual(layer.encoder_attn_layer_norm, pre)
        self.feed_forward = FeedForward(layer, pre, int8, bfloat16)


class Embedding:
    """Token plus position embeddings, normalised if the model does so (BART). offset: row of position 0 (BART: 2).
    positions: None if attention has them (T5).

    Padding tokens are embedded like any other.
    """

    __slots__ = ("norm", "offset", "positions", "scale", "table")

    def __init__(self, stack: Any) -> None:
        self.table = stack.embed_tokens.weight.detach()
        self.scale = float(getattr(stack, "embed_scale", getattr(stack.embed_tokens, "embed_scale", 1.0)))
        places = stack.embed_positions
        computed = getattr(places, "weights", None)  # sinusoids, not a parameter (M2M100)
        positions = getattr(places, "weight", None) if computed is None else computed
        self.positions = None if positions is None else numbers(positions)
        self.offset = _first_row(places)
        norm = getattr(stack, "layernorm_embedding", None)
        self.norm = Norm(norm) if norm is not None else None

    def __call__(self, ids: torch.Tensor, rows: Ragged) -> torch.Tensor:
        """Embeddings [N, d] of rows that begin at position 0 (ids: int64 [N])."""
        return self.block(ids, len(rows.counts), 0) if rows.uniform else self.scattered(ids, rows.slot)

    def block(self, ids: torch.Tensor, rows: int, start: int) -> torch.Tensor:
        """Embeddings [rows * t, d] of t tokens per row (ids: int64 [rows * t]), from position `start` on."""
        if self.positions is None:
            return self._finish(ids, None)
        each = len(ids) // rows
        places = self.positions[self.offset + start : self.offset + start + each]
        return self._finish(ids, places if rows == 1 or each == 1 else places.repeat(rows, 1))

    def scattered(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Embeddings [N, d] of tokens at these positions; both int64 [N]."""
        return self._finish(ids, None if self.positions is None else self.positions[positions + self.offset])

    def _finish(self, ids: torch.Tensor, places: torch.Tensor | None) -> torch.Tensor:
        x = numbers(functional.embedding(ids, self.table))
        if places is None:
            x = x if self.scale == 1.0 else x * self.scale
        else:
            x = x + places if self.scale == 1.0 else torch.add(places, x, alpha=self.scale)
        return x if self.norm is None else self.norm(x)


def _first_row(places: Any) -> int:
    """Row of position 0 in a table of position embeddings."""
    if type(places).__name__ in ("SinusoidalPositionalEmbedding", "M2M100SinusoidalPositionalEmbedding"):
        return int(places.padding_idx) + 1  # as in fairseq
    return int(getattr(places, "offset", 0))
