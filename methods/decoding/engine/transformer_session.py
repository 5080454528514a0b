"""The lean engine and its session: one cache for all layers, masks once a step, steps of few tokens in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.nn.functional as functional

from harness.common.errors import RequestError
from methods.decoding.engine.kernels import Weights, step, write
from methods.decoding.engine.layers import numbers
from methods.decoding.engine.ragged import Ragged, move
from methods.decoding.engine.session import Encoded, Engine, Session, last_of
from methods.decoding.engine.transformer import Transformer

PLACES = 64  # initial room of the cache, in tokens per row


class TransformerSession(Session):
    """Cache: one tensor [layers, rows, places, 2, shared, size], with keys and values of a token next to each other.
    The number of places doubles when they are used up."""

    def __init__(
        self, engine: Transformer, first: list[list[int]], longest: int, source: torch.Tensor | None = None,
        layout: Ragged | None = None,
    ) -> None:  # fmt: skip
        """longest: most tokens of a row. source: keys and values [layers, 2, rows, heads, longest source, size], and
        the layout of the sources; None for a causal model."""
        rows = len(first)
        self.engine, self.first = engine, [list(tokens) for tokens in first]
        self.vocabulary = len(engine.embedding.table)
        self.lengths = [0] * rows
        self._owners = list(range(rows))
        kind = numbers(engine.embedding.table[:0])
        if source is None or layout is None:
            self._all_sources, self._counts = kind.new_empty(0, 2, 0, 0, 0, 0), [0] * rows
        else:
            self._sharing = 1  # consecutive rows with the same source
            self._all_sources, self._all_masks = source, layout.mask(source.dtype)
            self._counts = [max(count, 1) for count in layout.counts]  # a source without tokens has a key of zeros
            self._see_sources(rows)
        self._longest = max(longest, 1)
        self._cache = kind.new_empty(
            len(engine.decoder), rows, min(self._longest, PLACES), 2, engine.shared, engine.size
        )
        self._clean = 0  # positions before it are initialised in every row

    def advance(self, tokens: Sequence[Sequence[int]], last: bool = False) -> torch.Tensor:
        engine = self.engine
        total = max(length + len(row) for length, row in zip(self.lengths, tokens, strict=True))
        self._reserve(total)
        if engine.compiled is not None and sum(map(len, tokens)) <= engine.few:
            return self._advance_few(engine.compiled, tokens, total, last)
        rows, ids = Ragged.packed(tokens, engine.device)
        start = self.lengths[0]
        aligned = rows.uniform and self.lengths.count(start) == len(self.lengths)
        live, windows = self._cache[:, : len(tokens)], {layer.window for layer in engine.decoder}
        turns = engine.turns(total)
        compiled, place = engine.compiled, None
        if not aligned or len(turns) or compiled is not None:
            place = torch.tensor(_positions(self.lengths, tokens), device=engine.device)
        if aligned or place is None:
            x = engine.embedding.block(ids, len(tokens), start)
            masks = {window: self._causal(rows.longest, total, window) for window in windows}
            written = live[:, :, start:total].unbind(0)
            self._clean = max(self._clean, total)
        else:
            x = engine.embedding.scattered(ids, place)
            masks = {window: self._scattered_mask(rows, total, window) for window in windows}
            if total > self._clean:  # unwritten cells of shorter rows are read with weight zero: no NaN there
                live[:, :, self._clean : total] = 0
                self._clean = total
        caches = live[:, :, :total].permute(0, 3, 1, 4, 2, 5).unbind(0)
        if compiled is not None and place is not None:
            where = [array.numpy() for array in (turns, rows.row, place, self._cache)]

        def attend(number: int, qkv: torch.Tensor) -> torch.Tensor:
            layer = engine.decoder[number]
            if compiled is not None:
                write(compiled, number, qkv.numpy(), *where)
                query = qkv[:, : engine.width].view(len(qkv), engine.heads, engine.size)
            else:
                query, new = engine.prepared(layer, qkv, place if len(turns) else None, turns)
                if aligned:
                    written[number].copy_(new.unflatten(0, (len(tokens), -1)))
                else:
                    live[number][rows.row, place] = new
            key, value = caches[number].unbind(0)
            return _attended(query, key, value, masks[layer.window], engine, rows)

        x = self._through_layers(x, rows, attend)
        self.lengths = [length + count for length, count in zip(self.lengths, rows.counts, strict=True)]
        return rows.last(x) if last else x

    def _advance_few(self, weights: Weights, tokens: Sequence[Sequence[int]], total: int, last: bool) -> torch.Tensor:
        """`advance` for few tokens, by the compiled step."""
        rows = len(tokens)
        if total > self._clean:
            if min(self.lengths) != total - 1 or max(map(len, tokens)) > 1:  # else all rows write this position
                self._cache[:, :rows, self._clean : total] = 0
            self._clean = total
        places = _positions(self.lengths, tokens)
        wanted = [1] * rows if last else [len(row) for row in tokens]
        sees = [place + 1 for place in places]
        states = self._compiled_step(weights, tokens, wanted, places, sees, self._cache)
        self.lengths = [length + len(row) for length, row in zip(self.lengths, tokens, strict=True)]
        return states

    def _compiled_step(
        self, weights: Weights, tokens: Sequence[Sequence[int]], wanted: Sequence[int], places: Sequence[int],
        sees: Sequence[int], cache: torch.Tensor,
    ) -> torch.Tensor:  # fmt: skip
        """States [sum(wanted), d] of the last `wanted[r]` tokens of each row. places: each token's position in its row;
        sees: number of positions that it attends to."""
        engine = self.engine
        ids = torch.tensor([token for row in tokens for token in row])
        x = step(
            engine.embedding.scattered(ids, torch.tensor(places)).numpy(),
            np.array([number for number, row in enumerate(tokens) for _ in row]), np.array(places), np.array(sees),
            np.array(last_of(tokens, wanted), np.int64), weights, engine.turns(max(places) + 1).numpy(), cache.numpy(),
            self._all_sources.numpy(), np.array(self._counts), np.array(self._owners), torch.get_num_threads(),
        )  # fmt: skip
        states = torch.from_numpy(x)
        return states if engine.norm is None else engine.norm(states)

    def _reserve(self, total: int) -> None:
        """Make room for `total` tokens per row."""
        held = self._cache.shape[2]
        if total > held:
            layers, rows, _, *rest = self._cache.shape
            grown = self._cache.new_empty(layers, rows, max(total, min(2 * held, self._longest)), *rest)
            grown[:, :, :held] = self._cache
            self._cache = grown

    def bidirectional(self, tokens: Sequence[Sequence[int]], wanted: Sequence[int]) -> torch.Tensor:
        engine = self.engine
        if engine.compiled is not None and sum(map(len, tokens)) <= engine.few:
            places = [slot for row in tokens for slot in range(len(row))]
            layers, _, _, *rest = self._cache.shape
            scratch = self._cache.new_empty(layers, len(tokens), max(map(len, tokens)), *rest)
            sees = [len(row) for row in tokens for _ in row]
            unbounded = engine.compiled._replace(windows=np.zeros_like(engine.compiled.windows))
            return self._compiled_step(unbounded, tokens, wanted, places, sees, scratch)
        rows, ids = Ragged.packed(tokens, engine.device)
        mask, turns = rows.mask(self._cache.dtype), engine.turns(rows.longest)
        if engine.bias is not None:
            mask = added(engine.bias(torch.arange(rows.longest, device=engine.device), rows.longest), mask)

        def attend(number: int, qkv: torch.Tensor) -> torch.Tensor:
            query, own = engine.prepared(engine.decoder[number], qkv, rows.slot if len(turns) else None, turns)
            key, value = rows.pad(own.flatten(1)).unflatten(2, own.shape[1:]).permute(2, 0, 3, 1, 4).unbind(0)
            return _attended(query, key, value, mask, engine, rows)

        states = self._through_layers(engine.embedding(ids, rows), rows, attend)
        return states[last_of(tokens, wanted)]

    def _through_layers(
        self, x: torch.Tensor, rows: Ragged, attend: Callable[[int, torch.Tensor], torch.Tensor]
    ) -> torch.Tensor:
        """States [N, d] of embeddings [N, d]. attend(layer number, qkv of the layer): its self-attention [N, heads *
        size]."""
        for number, layer in enumerate(self.engine.decoder):
            own = layer.residual
            x = own.add(x, layer.out(attend(number, layer.qkv(own.read(x)))))
            if layer.source_query is not None:
                source = layer.source_residual
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
        if self.engine.causal:
            self._owners, self._counts = list(range(len(rows))), [0] * len(rows)
        else:
            self._select_sources([self._owners[row] for row in rows])

    def _select_sources(self, owners: list[int]) -> None:
        distinct = list(dict.fromkeys(owners))
        sharing = len(owners) // max(len(distinct), 1)
        if [owner for owner in distinct for _ in range(sharing)] != owners:  # not consecutive: one source per row
            distinct, sharing = owners, 1
        if len(distinct) > self._all_sources.shape[2]:
            chosen = torch.tensor(distinct, device=self._all_sources.device)
            self._all_sources = self._all_sources[:, :, chosen]
            self._all_masks = self._all_masks[chosen] if self._all_masks is not None else None
        else:
            move(self._all_sources, 2, distinct)
            if self._all_masks is not None:
                move(self._all_masks, 0, distinct)
        self._counts = [self._counts[owner] for owner in distinct]
        self._sharing = sharing
        self._owners = [number for number in range(len(distinct)) for _ in range(sharing)]
        self._see_sources(len(distinct))

    def _see_sources(self, count: int) -> None:
        self._sources = [kv.unbind(0) for kv in self._all_sources[:, :, :count].unbind(0)]
        self._source_mask = self._all_masks[:count] if self._all_masks is not None else None

    def _attend_source(self, number: int, query: torch.Tensor, rows: Ragged) -> torch.Tensor:
        """Attention [N, d] over the source. Rows with the same source are further queries to it; it is held once."""
        engine, (key, value) = self.engine, self._sources[number]
        if self._sharing > 1 and not rows.uniform:
            key, value = (x.repeat_interleave(self._sharing, 0) for x in (key, value))
        queries = rows.pad(query).view(len(key), -1, engine.heads, engine.size).transpose(1, 2)
        mask = self._source_mask
        if mask is not None and len(mask) != len(key):
            mask = mask.repeat_interleave(self._sharing, 0)
        mixed = functional.scaled_dot_product_attention(queries, key, value, mask, scale=engine.scale)
        return rows.pack(mixed.transpose(1, 2).reshape(len(rows.counts), rows.longest, engine.width))

    def _causal(self, count: int, total: int, window: int | None) -> torch.Tensor | None:
        """Additive mask [count, total] or [heads, count, total] for the last `count` of `total` positions, which see
        `window` positions. None if it is zero, as for a single position that sees all."""
        bias = self.engine.bias
        own = bias(torch.arange(total - count, total, device=self._cache.device), total) if bias is not None else None
        narrow = window is not None and total > window
        if count == 1 and not narrow:
            return own
        blocked = self._cache.new_full((count, total), float("-inf")).triu_(total - count + 1)
        if window is not None and narrow:
            blocked += torch.full_like(blocked, float("-inf")).tril_(total - count - window)
        return blocked if own is None else own + blocked

    def _scattered_mask(self, rows: Ragged, total: int, window: int | None) -> torch.Tensor:
        """Additive mask [rows, 1 or heads, longest, total] for rows of different lengths, where a token sees `window`
        positions."""
        device = self._cache.device
        sees = torch.tensor(self.lengths, device=device)[:, None] + torch.arange(rows.longest, device=device)
        places = torch.arange(total, device=device)
        blocked = places > sees[:, :, None]
        if window is not None:
            blocked |= places <= sees[:, :, None] - window
        mask = torch.zeros(blocked.shape, dtype=self._cache.dtype, device=device)
        mask = mask.masked_fill_(blocked, float("-inf"))[:, None]
        return mask if self.engine.bias is None else self.engine.bias(sees, total) + mask


class TransformerEngine(Transformer, Engine):
    """A model of `transformer.CLASSES`, ready to decode."""

    ragged = True

    def encode(self, sources: Sequence[Sequence[int]]) -> Encoded:
        if self.causal:
            return Encoded(list(sources))
        rows, ids = Ragged.packed(sources, self.device)
        if not len(ids):
            return Encoded(list(sources), self.embedding.table[:0])
        x = self.source_embedding(ids, rows)
        mask = rows.mask(x.dtype)
        if self.source_bias is not None:
            mask = added(self.source_bias(torch.arange(rows.longest, device=self.device), rows.longest), mask)
        for layer in self.encoder:
            x = layer(x, rows, mask)
        return Encoded(list(sources), x if self.source_norm is None else self.source_norm(x))

    def open(self, encoded: Encoded, limits: Sequence[int]) -> TransformerSession:
        if self.causal:
            first = [list(source) or [self.start_id] for source in encoded.sources]
            return TransformerSession(self, first, max(map(len, first)) + max(limits))
        rows = Ragged([len(source) for source in encoded.sources], self.device)
        x = None if encoded.states is None else numbers(encoded.states)
        width = self.decoder[0].source_kv.inputs
        if x is None or x.shape[1] != width:
            raise RequestError(
                f"the decoder attends to encoder outputs of width {width}, given "
                f"{'none' if x is None else x.shape[1]}: encode the sources with a model of that width"
            )
        # [layers, 2, rows, heads, longest, d / heads]; a source without tokens has one key and value of zeros, so that
        # attention to it adds nothing
        source = x.new_zeros(len(self.decoder), 2, len(rows.counts), self.heads, max(rows.longest, 1), self.size)
        if len(x):
            for number, layer in enumerate(self.decoder):
                kv = rows.pad(layer.source_kv(x)).view(len(rows.counts), rows.longest, 2, self.heads, -1)
                source[number] = kv.permute(2, 0, 3, 1, 4)
        return TransformerSession(self, [[self.start_id]] * len(rows.counts), max(limits), source, rows)


def _attended(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, engine: Transformer,
    rows: Ragged,
) -> torch.Tensor:  # fmt: skip
    """Attention [N, heads * size] of queries [N, heads, size] in this layout of rows, to keys and values [rows, shared,
    places, size]."""
    queries = rows.pad(query.flatten(1)).view(len(rows.counts), rows.longest, engine.heads, engine.size)
    mixed = functional.scaled_dot_product_attention(
        queries.transpose(1, 2), key, value, mask, scale=engine.scale, enable_gqa=engine.shared != engine.heads
    )
    return rows.pack(mixed.transpose(1, 2).reshape(len(rows.counts), rows.longest, engine.width))


def added(bias: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    return bias if mask is None else bias + mask


def _positions(lengths: Sequence[int], tokens: Sequence[Sequence[int]]) -> list[int]:
    """Position of each new token in rows that hold `lengths` positions."""
    return [length + slot for length, row in zip(lengths, tokens, strict=True) for slot in range(len(row))]
