"""A lean engine for Marian, BART and their kin in `transformers`.

Profile (6 + 6 layers, d = 256, one row, one token): see `tests/benchmarks/test_decoding_benchmarks.py`; most of the
module's own step is Python and kernel launches, which this engine cuts by fusing projections, keeping one pre-allocated
cache for all layers, and making masks once per step instead of once per layer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as functional

from harness.errors import RequestError
from methods.decoding.dense import Dense
from methods.decoding.layers import DecoderLayer, Embedding, EncoderLayer, Norm, bidirectional
from methods.decoding.ragged import Ragged, move
from methods.decoding.session import Encoded, Engine, Session

# model classes -> whether a sub-layer normalises what it reads, instead of its sum
CLASSES = {
    "MarianMTModel": False,
    "BartForConditionalGeneration": False,
    "FSMTForConditionalGeneration": False,
    "MBartForConditionalGeneration": True,
    "M2M100ForConditionalGeneration": True,
    "PegasusForConditionalGeneration": True,
}


class TransformerEngine(Engine):
    """Weights of a model of `CLASSES`, fused and packed. The module must be in eval mode and not change later."""

    ragged = True

    def __init__(self, module: Any, start_id: int, device: str) -> None:
        encoder, decoder, pre = module.get_encoder(), module.get_decoder(), CLASSES[type(module).__name__]
        self.start_id, self.device = start_id, device
        self.source_embedding, self.embedding = Embedding(encoder), Embedding(decoder)
        self.encoder = [EncoderLayer(layer, pre) for layer in encoder.layers]
        self.decoder = [DecoderLayer(layer, pre) for layer in decoder.layers]
        self.source_norm, self.norm = (Norm(stack.layer_norm) if pre else None for stack in (encoder, decoder))
        self.heads = int(module.config.decoder_attention_heads)
        self.width, self.source_width = self.embedding.table.shape[1], len(self.decoder[0].source_kv.transposed)
        # FSMT calls its embeddings the output layer and multiplies by a matrix that need not be theirs
        head = getattr(decoder, "output_projection", None) or module.get_output_embeddings()
        self.head = Dense(head.weight, _output_bias(module))

    def encode(self, sources: Sequence[Sequence[int]]) -> Encoded:
        rows, ids = Ragged.packed(sources, self.device)
        if not len(ids):
            return Encoded(list(sources), self.embedding.table[:0])
        x, mask = self.source_embedding(ids, rows), rows.mask(self.embedding.table.dtype)
        for layer in self.encoder:
            x = layer(x, rows, mask)
        return Encoded(list(sources), x if self.source_norm is None else self.source_norm(x))

    def open(self, encoded: Encoded, limits: Sequence[int]) -> TransformerSession:
        rows, x = Ragged([len(source) for source in encoded.sources], self.device), encoded.states
        if x is None or x.shape[1] != self.source_width:
            raise RequestError(
                f"the decoder attends to encoder outputs of width {self.source_width}, given "
                f"{'none' if x is None else x.shape[1]}: encode the sources with a model of that width"
            )
        # [layers, 2, rows, heads, longest, d / heads]; a source without tokens is one key and value of zeros, which
        # adds nothing to what attends to it
        source = x.new_zeros(
            len(self.decoder), 2, len(rows.counts), self.heads, max(rows.longest, 1), self.width // self.heads
        )
        if len(x):
            for number, layer in enumerate(self.decoder):
                kv = rows.pad(layer.source_kv(x)).view(len(rows.counts), rows.longest, 2, self.heads, -1)
                source[number] = kv.permute(2, 0, 3, 1, 4)
        return TransformerSession(self, source, rows.mask(x.dtype), max(limits))


class TransformerSession(Session):
    """Cache: one tensor [layers, rows, longest, 2, heads, d / heads]; keys and values of a token lie side by side."""

    def __init__(
        self, engine: TransformerEngine, source: torch.Tensor, mask: torch.Tensor | None, longest: int
    ) -> None:
        rows = source.shape[2]
        self.engine = engine
        self.first = [[engine.start_id] for _ in range(rows)]
        self.vocabulary = len(engine.embedding.table)
        self.lengths = [0] * rows
        self._sharing = 1  # rows that read the same source, side by side
        self._owners = list(range(rows))
        self._all_sources, self._all_masks = source, mask
        self._see_sources(rows)
        self._cache = source.new_empty(
            len(engine.decoder), rows, max(longest, 1), 2, engine.heads, engine.width // engine.heads
        )
        self._clean = 0  # positions before it hold numbers in every row

    def advance(self, tokens: Sequence[Sequence[int]], last: bool = False) -> torch.Tensor:
        engine = self.engine
        rows, ids = Ragged.packed(tokens, engine.device)
        start = self.lengths[0]
        aligned = rows.uniform and self.lengths.count(start) == len(self.lengths)
        total = max(length + count for length, count in zip(self.lengths, rows.counts, strict=True))
        live = self._cache[:, : len(tokens)]
        if aligned:
            x = engine.embedding.block(ids, len(tokens), start)
            mask = self._causal(rows.longest, total)
            written = live[:, :, start:total].unbind(0)
            self._clean = max(self._clean, total)
        else:
            place = _positions(self.lengths, rows, engine.device)
            x = engine.embedding.scattered(ids, place)
            mask = self._scattered_mask(rows, total)
            if total > self._clean:  # cells that a shorter row has not written are read, weighted zero: no NaN there
                live[:, :, self._clean : total] = 0
                self._clean = total
        caches = live[:, :, :total].permute(0, 3, 1, 4, 2, 5).unbind(0)
        width, shape = engine.width, (2, engine.heads, engine.width // engine.heads)

        def attend(number: int, qkv: torch.Tensor) -> torch.Tensor:
            if aligned:
                written[number].copy_(qkv[:, width:].view(len(tokens), rows.longest, *shape))
            else:
                live[number][rows.row, place] = qkv[:, width:].view(-1, *shape)
            key, value = caches[number].unbind(0)
            query = rows.pad(qkv[:, :width]).view(len(tokens), rows.longest, engine.heads, -1).transpose(1, 2)
            mixed = functional.scaled_dot_product_attention(query, key, value, mask)
            return rows.pack(mixed.transpose(1, 2).reshape(len(tokens), rows.longest, width))

        x = self._through_layers(x, rows, attend)
        self.lengths = [length + count for length, count in zip(self.lengths, rows.counts, strict=True)]
        return rows.last(x) if last else x

    def bidirectional(self, tokens: Sequence[Sequence[int]]) -> torch.Tensor:
        engine = self.engine
        rows, ids = Ragged.packed(tokens, engine.device)
        mask = rows.mask(self._cache.dtype)
        return self._through_layers(
            engine.embedding(ids, rows), rows, lambda _, qkv: bidirectional(qkv, rows, engine.heads, mask)
        )

    def _through_layers(
        self, x: torch.Tensor, rows: Ragged, attend: Callable[[int, torch.Tensor], torch.Tensor]
    ) -> torch.Tensor:
        """States [N, d] of embeddings [N, d]; attend(layer's number, qkv [N, 3 d]) is its self-attention [N, d]."""
        for number, layer in enumerate(self.engine.decoder):
            own, source = layer.residual, layer.source_residual
            x = own.add(x, layer.out(attend(number, layer.qkv(own.read(x)))))
            query = layer.source_query(source.read(x))
            x = source.add(x, layer.source_out(self._attend_source(number, query, rows)))
            x = layer.feed_forward(x)
        return x if self.engine.norm is None else self.engine.norm(x)

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        return self.engine.head(states)

    def select(self, rows: Sequence[int], since: int = 0) -> None:
        held = max((self.lengths[row] for row in rows), default=0)
        if len(rows) > self._cache.shape[1]:
            grown = self._cache.new_empty(self._cache.shape[0], len(rows), *self._cache.shape[2:])
            grown[:, :, :held] = self._cache[:, torch.tensor(rows, device=grown.device), :held]
            self._cache, self._clean = grown, held
        else:
            move(self._cache[:, :, since:held], 1, rows)
        self.lengths = [self.lengths[row] for row in rows]
        self.first = [self.first[row] for row in rows]
        self._select_sources([self._owners[row] for row in rows])

    def _select_sources(self, owners: list[int]) -> None:
        distinct = list(dict.fromkeys(owners))
        sharing = len(owners) // max(len(distinct), 1)
        if [owner for owner in distinct for _ in range(sharing)] != owners:  # not side by side: one source a row
            distinct, sharing = owners, 1
        if len(distinct) > self._all_sources.shape[2]:
            chosen = torch.tensor(distinct, device=self._all_sources.device)
            self._all_sources = self._all_sources[:, :, chosen]
            self._all_masks = self._all_masks[chosen] if self._all_masks is not None else None
        else:
            move(self._all_sources, 2, distinct)
            if self._all_masks is not None:
                move(self._all_masks, 0, distinct)
        self._sharing = sharing
        self._owners = [number for number in range(len(distinct)) for _ in range(sharing)]
        self._see_sources(len(distinct))

    def _see_sources(self, count: int) -> None:
        self._sources = [kv.unbind(0) for kv in self._all_sources[:, :, :count].unbind(0)]
        self._source_mask = self._all_masks[:count] if self._all_masks is not None else None

    def _attend_source(self, number: int, query: torch.Tensor, rows: Ragged) -> torch.Tensor:
        """Attention [N, d] over the source; rows that share one are further queries of it, so it is held once."""
        engine, (key, value) = self.engine, self._sources[number]
        if self._sharing > 1 and not rows.uniform:
            key, value = (x.repeat_interleave(self._sharing, 0) for x in (key, value))
        queries = rows.pad(query).view(len(key), -1, engine.heads, engine.width // engine.heads).transpose(1, 2)
        mask = self._source_mask
        if mask is not None and len(mask) != len(key):
            mask = mask.repeat_interleave(self._sharing, 0)
        mixed = functional.scaled_dot_product_attention(queries, key, value, mask)
        return rows.pack(mixed.transpose(1, 2).reshape(len(rows.counts), rows.longest, engine.width))

    def _causal(self, count: int, total: int) -> torch.Tensor | None:
        """Additive [count, total] for the last `count` of `total` positions; None for a single one, which sees all."""
        if count == 1:
            return None
        blocked = self._cache.new_full((count, total), float("-inf"))
        return blocked.triu_(total - count + 1)

    def _scattered_mask(self, rows: Ragged, total: int) -> torch.Tensor:
        """Additive [rows, 1, longest, total] where rows hold different lengths."""
        device = self._cache.device
        sees = torch.tensor(self.lengths, device=device)[:, None] + torch.arange(rows.longest, device=device)
        blocked = torch.arange(total, device=device) > sees[:, :, None]
        mask = torch.zeros(blocked.shape, dtype=self._cache.dtype, device=device)
        return mask.masked_fill_(blocked, float("-inf"))[:, None]


def _positions(lengths: Sequence[int], rows: Ragged, device: str) -> torch.Tensor:
    """Position of each token, int64 [N], behind the `lengths` that the rows hold."""
    return torch.tensor(
        [length + slot for length, count in zip(lengths, rows.counts, strict=True) for slot in range(count)],
        device=device,
    )


def _output_bias(module: Any) -> torch.Tensor | None:
    """Bias [V] of the output layer, or None where it is zero."""
    bias: torch.Tensor | None = getattr(module, "final_logits_bias", None)
    return bias[0] if bias is not None and bool((bias != 0).any()) else None
