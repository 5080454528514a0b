"""Generation of tokens behind a prompt, by a model that reads on behind its cache and can go back to where it was."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from harness.common.errors import RequestError
from harness.contracts import GenerationModel, Phases
from methods.ralmspec.core.speculation import Process, Step

T = TypeVar("T")  # what a search finds for one query


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


@dataclass(slots=True)
class GenerationStep(Step):
    """A step and where it began. mark: the reader's place; length: tokens of context."""

    mark: Mark
    length: int


S = TypeVar("S", bound=GenerationStep)


class Generation(Process[S, T]):
    """One request, a step of which gives `interval` tokens: `context` is the prompt and the output so far, `reader` the
    model behind what it has read of it."""

    interval = 1

    def __init__(self, model: GenerationModel, prompt: Sequence[int], limit: int, phases: Phases) -> None:
        """At most `limit` tokens behind the prompt, or behind the start token where it is empty."""
        self.model = model
        self.limit = limit
        self.phases = phases
        self.context = list(prompt) or [model.start_id]
        self.prompt_length = len(self.context)
        self.ends = frozenset(model.eos_ids)
        self.reader = Reader(model)

    @property
    def output(self) -> list[int]:
        """The tokens generated so far."""
        return self.context[self.prompt_length :]

    @property
    def finished(self) -> bool:
        length = len(self.context) - self.prompt_length
        return length >= self.limit or (length > 0 and self.context[-1] in self.ends)

    @property
    def left(self) -> int:
        return -(-(self.limit - len(self.context) + self.prompt_length) // self.interval)

    def counters(self) -> dict[str, float]:
        """What the output itself tells, however it came about."""
        return {}

    def rewind(self, step: S) -> None:
        self.reader.rewind(step.mark)
        del self.context[step.length :]
