"""Weights of the lean engine for Marian, BART, T5, Llama, Gemma and similar models in `transformers`.

Profile (6 + 6 layers, d = 256, one row, one token): see `tests/benchmarks/test_decoding_benchmarks.py`. Most of the
module's own step is Python and kernel launches. This engine reduces them: it fuses projections, keeps one cache for all
layers, and makes masks once per step instead of once per layer.

Steps of a few tokens on a CPU are one compiled call. The narrower the model, the larger the share of calls in a step,
and the more tokens the compiled step is faster for: with two threads up to 30 tokens at width 256 (20 tokens: 3.7 ms
instead of 4.5), up to 6 at width 512, fewer than 6 at width 1024.

A pass over 8 tokens of Gemma-3-270M in bfloat16 takes 29 ms without the output layer (two threads of an Intel Xeon with
AMX). Products are 18 ms of it. A small call of torch between them takes 15 to 50 microseconds instead of 2, because
reading the weights has emptied the caches. So one compiled call a layer normalises and rotates queries and keys and
writes the cache.
"""

from __future__ import annotations

from typing import Any

import torch

from methods.decoding.engine import causal, relative
from methods.decoding.engine.compiled import gathered
from methods.decoding.engine.dense import Dense
from methods.decoding.engine.kernels import ready
from methods.decoding.engine.layers import DecoderLayer, Embedding, EncoderLayer, norm_of

# up to width NARROW, steps of up to MANY tokens are compiled; for wider models as many as `Dense` gives to its loop
NARROW, MANY = 256, 20

# model classes -> whether a sub-layer normalises its input instead of the residual sum
CLASSES = {
    "MarianMTModel": False,
    "BartForConditionalGeneration": False,
    "FSMTForConditionalGeneration": False,
    "MBartForConditionalGeneration": True,
    "M2M100ForConditionalGeneration": True,
    "PegasusForConditionalGeneration": True,
    **dict.fromkeys((*relative.TYPES, *causal.TYPES), True),
}


class Transformer:
    """Weights of a model of `CLASSES`, fused and packed. The module must be in eval mode and not change later.

    int8: the decoder's matrices were made by `dense.rounded` and are read as 8-bit numbers. bfloat16: products are in
    it though the module is in float32; a module in bfloat16 on a CPU needs no saying so.
    heads: of queries; shared: of keys and values, each for as many queries; size: width of a head; window: positions
    that a token sees in the narrowest layer; None: all.
    """

    def __init__(
        self, module: Any, start_id: int, device: str, int8: bool = False, bfloat16: bool = False
    ) -> None:  # fmt: skip
        pre, name = CLASSES[type(module).__name__], type(module).__name__
        self.source_bias = self.bias = self.scale = self.rotations = None
        self.start_id, self.device, self.causal = start_id, device, name in causal.TYPES
        if self.causal:
            decoder = causal.stack_of(module)
            own, self.rotations = decoder.layers[0].self_attn, decoder.rotations
            self.heads, self.scale = int(own.num_heads), float(own.scale)
        else:
            encoder, decoder = module.get_encoder(), module.get_decoder()
            if name in relative.TYPES:
                self.source_bias, self.bias = relative.RelativeBias(encoder), relative.RelativeBias(decoder)
                self.scale = 1.0
                encoder, decoder = relative.stack_of(encoder), relative.stack_of(decoder)
            self.source_embedding = Embedding(encoder)
            self.encoder = [EncoderLayer(layer, pre, self.scale) for layer in encoder.layers]
            self.source_norm = norm_of(encoder.layer_norm) if pre else None
            self.heads = int(decoder.layers[0].self_attn.num_heads)
        self.embedding = Embedding(decoder)
        self.decoder = [DecoderLayer(layer, pre, int8, bfloat16) for layer in decoder.layers]
        self.window = min((layer.window for layer in self.decoder if layer.window), default=None)
        self.norm = norm_of(decoder.layer_norm) if pre else None
        first = self.decoder[0]
        self.width = first.out.inputs  # of all heads of queries together
        self.size = self.width // self.heads
        self.shared = (first.qkv.outputs // self.size - self.heads) // 2
        known = self.bias is None  # positions as biases of attention (T5) have no compiled step
        self.compiled = gathered(self.decoder, self.heads, self.size, self.scale) if known else None
        ready()
        self.few = MANY if self.width <= NARROW else first.qkv.few
        weight = output_layer(module).weight
        if getattr(module.config, "scale_decoder_outputs", False):  # T5 with tied embeddings
            weight = weight * module.config.d_model**-0.5
        self.head = Dense(weight, _output_bias(module), int8, bfloat16)

    def turns(self, places: int) -> torch.Tensor:
        """Rotations [types, at least `places`, 2, size / 2]; of no type if positions are not rotary."""
        if self.rotations is None:
            return torch.empty(0, 0, 2, 0)
        turns: torch.Tensor = self.rotations(places, self.device)
        return turns

    def prepared(
        self, layer: DecoderLayer, qkv: torch.Tensor, positions: torch.Tensor | None, turns: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Queries [N, heads, size], and keys with values [N, 2, shared, size], of qkv [N, (heads + 2 shared) size].

        Norms and rotations are the layer's. positions: of the tokens, int64 [N]; None if there are no rotations.
        """
        if layer.query_norm is None and positions is None:
            query, others = qkv.split([self.width, qkv.shape[1] - self.width], 1)
            return query.unflatten(1, (self.heads, self.size)), others.unflatten(1, (2, self.shared, self.size))
        query, key, value = qkv.view(len(qkv), -1, self.size).split([self.heads, self.shared, self.shared], 1)
        if layer.query_norm is not None and layer.key_norm is not None:
            query, key = layer.query_norm(query), layer.key_norm(key)
        if positions is not None:
            cosine, sine = turns[layer.turned, positions].to(qkv.dtype)[:, None].unbind(2)
            query, key = (_turned(x, cosine, sine) for x in (query, key))
        return query, torch.stack([key, value], 1)


def _turned(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    """Queries or keys [N, heads, size] rotated by angles with these cosines and sines, [N, 1, size / 2]."""
    a, b = x.chunk(2, -1)
    return torch.cat([a * cosine - b * sine, b * cosine + a * sine], -1)


def output_layer(module: Any) -> torch.nn.Linear:
    """The layer that gives the logits. In FSMT, the module of this name holds embeddings; its output matrix may be
    another."""
    found: torch.nn.Linear = getattr(module.get_decoder(), "output_projection", None) or module.get_output_embeddings()
    return found


def _output_bias(module: Any) -> torch.Tensor | None:
    """Bias [V] of the output layer, or None if it is zero."""
    bias: torch.Tensor | None = getattr(module, "final_logits_bias", None)
    return bias[0] if bias is not None and bool((bias != 0).any()) else None
