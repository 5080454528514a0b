"""What both processes are: the generation of tokens behind a prompt, which can go back to where a step began."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from harness.contracts import GenerationModel, Phases
from methods.ralmspec.reader import Mark, Reader
from methods.ralmspec.speculation import Process, Step

T = TypeVar("T")  # what a search finds for one query


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
