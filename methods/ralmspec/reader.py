"""A causal model that reads on behind a key-value cache, and can go back to where it was."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from harness.contracts import GenerationModel
from harness.errors import RequestError


@dataclass(frozen=True, slots=True)
class Mark:
    """A place to return to: the cache object of that time and how much of it was read."""

    cache: Any
    length: int


class Reader:
    """Feeds token ids to the model; all that was fed since `clear` is the context of what comes next."""

    def __init__(self, model: GenerationModel) -> None:
        """Raises `RequestError` when the model is not causal or its cache cannot be cut."""
        if model.kind != "causal":
            raise RequestError(f"{model.name} is no causal language model; retrieval generation needs one")
        self.model = model
        self.device = model.device
        accepted = inspect.signature(model.module.forward).parameters
        self._last_only = {"logits_to_keep": 1} if "logits_to_keep" in accepted else {}
        self.clear()

    def clear(self) -> None:
        """Forget everything read. Marks keep the cache they refer to."""
        from transformers.cache_utils import DynamicCache

        self.cache = DynamicCache(config=self.model.module.config)
        self.length = 0
        if not all(getattr(layer, "is_croppable", True) for layer in self.cache.layers):
            raise RequestError(f"{self.model.name}: its key-value cache cannot be cut back, which speculation needs")
        for layer in self.cache.layers:
            if getattr(layer, "is_sliding", False):
                layer.activate_past_recording()  # else it forgets what a cut would bring back

    @torch.no_grad()
    def read(self, ids: Sequence[int]) -> torch.Tensor:
        """Read ids (at least one); logits [V] of the token that follows."""
        inputs = torch.tensor([ids], device=self.device)
        output = self.model.module(input_ids=inputs, past_key_values=self.cache, use_cache=True, **self._last_only)
        self.length += len(ids)
        logits: torch.Tensor = output.logits[0, -1]
        return logits

    def mark(self) -> Mark:
        """The present place."""
        return Mark(self.cache, self.length)

    def rewind(self, mark: Mark) -> None:
        """Return to a place. Marks set later in the same cache are void then."""
        self.cache = mark.cache
        surplus = self.cache.get_seq_length() - mark.length
        if surplus:
            self.cache.crop(-surplus)
        self.length = mark.length
