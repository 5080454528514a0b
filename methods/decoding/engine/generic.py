"""Any other `transformers` model, run through its own forward pass with a cache in which rows have different lengths.

Causal models that take position ids decode ragged batches. An encoder-decoder model of an unknown class computes
positions from the cache's length, so all rows of its sessions are equally long (`ragged` is False).
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as functional
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

from harness.common.errors import RequestError
from methods.decoding.engine.ragged import Ragged, move
from methods.decoding.engine.session import Encoded, Engine, Session, last_of


@dataclass
class EncoderStates(BaseModelOutput):
    """An encoder's output in the form that decoders of all types take. router_logits: read by some, not used."""

    router_logits: Any = None


class PacedLayer(DynamicLayer):
    """One layer's keys and values [rows, heads, places, d / heads]. `pace` holds the positions of new ones. The number
    of places doubles when they are used up."""

    def __init__(self, pace: Pace) -> None:
        super().__init__()
        self.pace = pace
        self.is_initialized: bool = False

    def update(self, key: torch.Tensor, value: torch.Tensor, *_: Any, **__: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Write [rows, heads, t, d / heads] at the positions of `pace`. Returns keys and values up to the longest
        row."""
        pace = self.pace
        if not self.is_initialized:
            self.dtype, self.device, self.is_initialized = key.dtype, key.device, True
            self.keys, self.values = (x.new_zeros(*x.shape[:2], 0, x.shape[3]) for x in (key, value))
        held = self.keys.shape[2]
        if pace.total > held:
            more = max(pace.total, min(2 * held, pace.longest)) - held
            self.keys, self.values = (functional.pad(cache, (0, 0, 0, more)) for cache in (self.keys, self.values))
        for cache, new in ((self.keys, key), (self.values, value)):
            if pace.scattered is None:
                cache[: len(new), :, pace.start : pace.total] = new
            else:
                row, slot, place = pace.scattered
                cache[row, :, place] = new[row, :, slot]
        rows = len(key)  # finished rows stay at the end
        return self.keys[:rows, :, : pace.total], self.values[:rows, :, : pace.total]

    def rearrange(self, rows: Sequence[int], since: int, held: int) -> None:
        """Row i becomes what row rows[i] was. Its first `since` of `held` positions are equal already and stay."""
        if len(rows) <= len(self.keys):
            for cache in (self.keys, self.values):
                move(cache[:, :, since:held], 0, rows)
            return
        chosen = torch.tensor(list(rows), device=self.keys.device)
        grown = [cache.new_zeros(len(rows), *cache.shape[1:]) for cache in (self.keys, self.values)]
        for new, cache in zip(grown, (self.keys, self.values), strict=True):
            new[:, :, :held] = cache[:, :, :held].index_select(0, chosen)
        self.keys, self.values = grown

    def get_seq_length(self) -> int:
        """Positions held before the tokens of this step."""
        return self.pace.start


class Pace:
    """Positions of one step's tokens: [start, total) in every row, or scattered (row, slot, place), int64 [N] each.

    longest: most positions of a row.
    """

    def __init__(self, longest: int) -> None:
        self.longest, self.start, self.total = longest, 0, 0
        self.scattered: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None = None


class GenericEngine(Engine):
    """A module of `transformers` as it is.

    window: tokens that its narrowest layer attends to; None: all. The masks of ragged rows do not support windows, and
    the longest row decides the rotations of all (`rotation_switch`), so a model with either takes rows of equal length.
    """

    def __init__(self, module: Any, kind: str, start_id: int, device: str) -> None:
        self.module, self.start_id, self.device = module, start_id, device
        self.encoder_decoder = kind == "encoder-decoder"
        parameters = inspect.signature(module.forward).parameters
        config = module.config.get_text_config()
        kinds = set(getattr(config, "layer_types", None) or [])
        if not kinds <= {"full_attention", "sliding_attention", "chunked_attention"}:
            raise RequestError(
                f"{type(module).__name__} has layers without a key-value cache ({', '.join(sorted(kinds))}): "
                "their state cannot be cropped; use a model with attention in every layer"
            )
        windows = (_window(part) for part in (config, getattr(module.config, "encoder", config)))
        self.window = min(filter(None, windows), default=None)
        ragged = self.window is None and rotation_switch(config) is None and not self.encoder_decoder
        self.ragged = "position_ids" in parameters and ragged
        self.keeps_last = "logits_to_keep" in parameters
        named = (getattr(config, name, None) for name in ("num_decoder_layers", "decoder_layers", "num_hidden_layers"))
        self.layers = int(next(count for count in named if count))  # T5's `num_hidden_layers` are its encoder's
        stack = module.get_decoder() if self.encoder_decoder else module
        # FSMT's decoder has no method for its embeddings
        table = stack.get_input_embeddings() if hasattr(stack, "get_input_embeddings") else stack.embed_tokens
        self.vocabulary = int(table.num_embeddings)

    def encode(self, sources: Sequence[Sequence[int]]) -> Encoded:
        if not self.encoder_decoder:
            return Encoded(list(sources))
        if not all(map(len, sources)):
            raise RequestError(f"an empty source: {type(self.module).__name__} needs at least its end token")
        rows, ids = _padded(sources, self.device)
        outputs = self.module.get_encoder()(input_ids=ids, attention_mask=_present(rows))
        return Encoded(list(sources), rows.pack(outputs.last_hidden_state))

    def open(self, encoded: Encoded, limits: Sequence[int]) -> GenericSession:
        return GenericSession(self, encoded, max(limits))

    def logits(self, ids: torch.Tensor, inputs: dict[str, Any]) -> torch.Tensor:
        """Logits [rows, t, V] of ids [rows, t]."""
        ids_name = "decoder_input_ids" if self.encoder_decoder else "input_ids"
        logits: torch.Tensor = self.module(**{ids_name: ids}, **inputs).logits
        return logits


class GenericSession(Session):
    """States are the module's logits themselves."""

    def __init__(self, engine: GenericEngine, encoded: Encoded, limit: int) -> None:
        self.engine, sources = engine, encoded.sources
        self.vocabulary = engine.vocabulary
        self.encoded: dict[str, Any] = {}
        self.owners = list(range(len(sources)))  # the source that each row reads
        if encoded.states is not None:
            rows = Ragged([len(source) for source in sources], engine.device)
            outputs = EncoderStates(last_hidden_state=rows.pad(encoded.states))
            self.encoded = {"encoder_outputs": outputs, "attention_mask": _present(rows)}
            self.first = [[engine.start_id] for _ in sources]
        else:
            self.first = [list(source) or [engine.start_id] for source in sources]
        self.lengths = [0] * len(sources)
        self.pace = Pace(max(map(len, self.first)) + limit)
        own = Cache(layers=[PacedLayer(self.pace) for _ in range(engine.layers)])
        self.layers: list[PacedLayer] = own.layers
        self.cache = EncoderDecoderCache(own, DynamicCache()) if engine.encoder_decoder else own

    def advance(self, tokens: Sequence[Sequence[int]], last: bool = False) -> torch.Tensor:
        engine, pace, device = self.engine, self.pace, self.engine.device
        rows, ids = _padded(tokens, device)
        inputs: dict[str, Any] = {"past_key_values": self.cache, "use_cache": True, **self.encoded}
        aligned = rows.uniform and self.lengths.count(self.lengths[0]) == len(self.lengths)
        pace.total = max(length + count for length, count in zip(self.lengths, rows.counts, strict=True))
        pace.start = self.lengths[0] if aligned else pace.total - rows.longest
        pace.scattered = None
        if not aligned:
            starts = torch.tensor(self.lengths, device=device)
            positions = starts[:, None] + torch.arange(rows.longest, device=device)
            pace.scattered = rows.row, rows.slot, positions[rows.row, rows.slot]
            ends = starts + torch.tensor(rows.counts, device=device) - 1
            inputs["position_ids"] = torch.minimum(positions, ends[:, None])  # keeps padding inside the model's window
            blocked = torch.arange(pace.total, device=device) > positions[:, :, None]
            mask = torch.zeros(blocked.shape, dtype=engine.module.dtype, device=device)
            inputs["attention_mask"] = mask.masked_fill_(blocked, torch.finfo(mask.dtype).min)[:, None]
        kept = sorted({count - 1 for count in rows.counts})  # positions of the rows' last tokens
        few = last and engine.keeps_last and len(kept) < rows.longest
        if few:
            inputs["logits_to_keep"] = torch.tensor(kept, device=device) if len(kept) > 1 else 1
        logits = engine.logits(ids, inputs)
        self.lengths = [length + count for length, count in zip(self.lengths, rows.counts, strict=True)]
        if few:
            result: torch.Tensor = logits[list(range(len(tokens))), [kept.index(count - 1) for count in rows.counts]]
            return result
        packed = rows.pack(logits)
        return rows.last(packed) if last else packed

    def bidirectional(self, tokens: Sequence[Sequence[int]], wanted: Sequence[int]) -> torch.Tensor:
        engine = self.engine
        rows, ids = _padded(tokens, engine.device)
        mask = rows.mask(engine.module.dtype)
        if mask is None:  # without any mask the model would use a causal one
            mask = torch.zeros(len(tokens), 1, 1, rows.longest, dtype=engine.module.dtype, device=engine.device)
        name = "decoder_attention_mask" if engine.encoder_decoder else "attention_mask"
        logits = rows.pack(engine.logits(ids, {**self.encoded, name: mask, "use_cache": False}))
        return logits[last_of(tokens, wanted)]

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        return states

    def select(self, rows: Sequence[int], since: int = 0) -> None:
        held = max((self.lengths[row] for row in rows), default=0)
        for layer in self.layers:
            if layer.is_initialized:
                layer.rearrange(rows, since, held)
        self.lengths = [self.lengths[row] for row in rows]
        self.first = [self.first[row] for row in rows]
        before, self.owners = self.owners, [self.owners[row] for row in rows]
        if self.engine.encoder_decoder and self.owners != before:  # beams of one sentence read the same source
            chosen = torch.tensor(list(rows), device=self.engine.device)
            self.cache.cross_attention_cache.batch_select_indices(chosen)
            outputs = self.encoded["encoder_outputs"].last_hidden_state
            self.encoded["encoder_outputs"] = EncoderStates(last_hidden_state=outputs[chosen])
            self.encoded["attention_mask"] = self.encoded["attention_mask"][chosen]


def _window(config: Any) -> int | None:
    """Tokens that the narrowest layer of a model attends to, under any of the names in configurations. None if there is
    no window, or none smaller than the model's number of positions."""
    if getattr(config, "use_sliding_window", True) is False:
        return None
    kinds = getattr(config, "layer_types", None) or getattr(config, "attention_layers", None)
    if kinds is not None and not {"sliding_attention", "chunked_attention", "local"} & set(kinds):
        return None
    names = ("sliding_window", "attention_chunk_size", "attention_window_size", "window_size")
    windows = [size for name in names if isinstance(size := getattr(config, name, None), int) and size > 0]
    positions = getattr(config, "max_position_embeddings", None)
    narrow = [size for size in windows if positions is None or size < positions]
    return min(narrow, default=None)


def rotation_switch(config: Any) -> int | None:
    """Tokens of the longest text that is rotated by short factors; None if rotations do not depend on the length.

    LongRoPE (Ding et al., 2024; Phi-3) rotates every token of a longer text by other factors. Keys in a cache keep the
    factors of the length at which they were made.
    """
    ropes = getattr(config, "rope_parameters", None) or {}
    several = [ropes, *(rope for rope in ropes.values() if isinstance(rope, dict))]  # some have one for a kind of layer
    switches = [rope["original_max_position_embeddings"] for rope in several if rope.get("rope_type") == "longrope"]
    return min(switches, default=None)


def _padded(tokens: Sequence[Sequence[int]], device: str) -> tuple[Ragged, torch.Tensor]:
    """The layout of the rows, and their ids int64 [rows, longest], padded with zeros."""
    rows = Ragged([len(row) for row in tokens], device)
    return rows, torch.tensor([[*row, *[0] * (rows.longest - len(row))] for row in tokens], device=device)


def _present(rows: Ragged) -> torch.Tensor:
    """int64 [rows, longest]: 1 where a row has a token."""
    return torch.tensor([[1] * n + [0] * (rows.longest - n) for n in rows.counts], device=rows.device)
