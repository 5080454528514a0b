"""Token generation after a prompt, with a key-value cache that can be cut back to an earlier position."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch

from harness.common.errors import RequestError
from harness.common.generate import NOT_FINITE
from harness.contracts import GenerationModel, Phases
from methods.bandwidth import counted
from methods.decoding.engine.generic import rotation_switch
from methods.decoding.engine.session import Engine, Session
from methods.ralmspec.core.speculation import Process, Step

T = TypeVar("T")  # the search result of one query
Mark = tuple[Session, int, int]  # a position to return to: the session of that time, its length and the context's


@dataclass(slots=True)
class GenerationStep(Step):
    """A step and where it began."""

    mark: Mark


S = TypeVar("S", bound=GenerationStep)


class Generation(Process[S, T]):
    """One request. A step generates `interval` tokens. `context` holds the prompt and the output so far, `session`
    what was fed to the model since `clear`. passes: of the model."""

    interval = 1

    def __init__(
        self, model: GenerationModel, engine: Engine, prompt: Sequence[int], limit: int, phases: Phases
    ) -> None:
        """Generates at most `limit` tokens after the prompt, or after the start token if the prompt is empty. Raises
        `RequestError` if the model rotates a text by its length."""
        if rotation_switch(model.module.config.get_text_config()) is not None:
            raise RequestError(
                f"{model.name} rotates a text by its length (longrope); keys in its cache cannot be kept"
            )
        self.model = model
        self.engine = engine
        self.limit = limit
        self.phases = phases
        self.context = list(prompt) or [model.start_id]
        self.prompt_length = len(self.context)
        self.ends = frozenset(model.eos_ids)
        self.passes = 0
        self.clear()

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
        """Counts that depend on the output alone, not on how it was computed."""
        return {}

    @abstractmethod
    def searched(self) -> float | None:
        """Bytes of entries, vectors and encoders that the request has read (`methods.bandwidth`)."""

    def bytes_read(self) -> dict[str, float]:
        """The counter; empty where it is unknown."""
        others = self.searched()
        return {} if others is None else counted(self.model, self.passes, others)

    def clear(self) -> None:
        """Forget everything fed. Marks keep the session they refer to."""
        self.session = self.engine.start([[]], [self.model.window])

    @torch.inference_mode()
    def feed(self, ids: Sequence[int]) -> torch.Tensor:
        """Feed ids (at least one); logits [V] of the token that follows. Raises `RequestError` if the largest is not a
        finite number."""
        logits = self.session.logits(self.session.advance([ids], last=True))[0]
        self.passes += 1
        if not bool(logits.amax().isfinite()):
            raise RequestError(NOT_FINITE.format(self.model.name, self.session.lengths[0]))
        return logits

    def mark(self) -> Mark:
        """The current position. Returning to an earlier one of the same session makes it invalid."""
        return self.session, self.session.lengths[0], len(self.context)

    def rewind(self, step: S) -> None:
        self.session, fed, length = step.mark
        self.session.lengths[0] = fed
        del self.context[length:]
