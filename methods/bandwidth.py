"""What a step reads. Bytes are counted, not measured, by the rule of docs/measuring.md ("What a step reads"). All
experts of a mixture count."""

from __future__ import annotations

import re
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary


class Weights(NamedTuple):
    """Bytes of a model's parameters. encoder: of the encoder; sources: of the decoder's projections of the encoder's
    outputs. Both are read once for each batch of sources, and are 0 for a causal model. each_pass: those read in every
    forward pass, of decoder and output layer."""

    encoder: int
    sources: int
    each_pass: int

    @property
    def once(self) -> int:
        return self.encoder + self.sources


_OF_SOURCES = re.compile(r"(encoder_attn|EncDecAttention)\.[kv]")  # a decoder's projections of encoded sources
_known: WeakKeyDictionary[Any, Weights] = WeakKeyDictionary()


def weights_of(model: Any) -> Weights | None:
    """The weights that a model of `transformers` in `model.module` reads; None for any other."""
    import torch

    module = getattr(model, "module", None)
    if not isinstance(module, torch.nn.Module):
        return None
    if module not in _known:
        parts: Any = module
        embeddings = [part for part in parts.modules() if isinstance(part, torch.nn.Embedding)]
        tables = {weight for part in embeddings for weight in part.parameters()}
        encoder = set(parts.get_encoder().parameters()) if parts.config.is_encoder_decoder else set()
        sources = {weight for name, weight in parts.named_parameters() if _OF_SOURCES.search(name)}
        stack = parts.get_decoder() if parts.config.is_encoder_decoder else parts
        head = getattr(stack, "output_projection", None) or parts.get_output_embeddings()  # the former in FSMT
        decoder = {*parts.parameters()} - encoder - sources - tables
        decoder |= {*(head.parameters() if head is not None else ())}
        _known[module] = Weights(_bytes(encoder - tables), _bytes(sources), _bytes(decoder))
    return _known[module]


def counted(model: Any, passes: int, others: float = 0.0) -> dict[str, float]:
    """The counter `bytes_read` of forward passes of a model and `others`; empty if the model's weights are unknown."""
    weights = weights_of(model)
    return {} if weights is None else {"bytes_read": weights.each_pass * passes + others}


def _bytes(parameters: set[Any]) -> int:
    return sum(parameter.numel() * parameter.element_size() for parameter in parameters)
