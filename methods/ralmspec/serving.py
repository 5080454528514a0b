"""What all methods here have in common: one way through a request, with or without speculation."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch

from harness.contracts import Decoded, GenerationModel, Phases, RetrievalGeneration
from harness.contracts.answers import common_prefix
from methods.ralmspec.service import Scheduling, Service
from methods.ralmspec.speculation import follow


@dataclass(kw_only=True)
class Speculation:
    """Parameters of speculation. scheduler: `fixed` with `stride`, or `os3` (S) with `window` and `gamma_max`.
    asynchronous: A."""

    scheduler: Scheduling = "fixed"
    stride: int = 3
    window: int = 5
    gamma_max: float = 0.6
    asynchronous: bool = False

    def new_service(self) -> Service:
        """Raises `RequestError` for a value out of range."""
        return Service(self.scheduler, self.stride, self.window, self.gamma_max, self.asynchronous)


class Serving(RetrievalGeneration):
    """Serves requests, sequentially without a `service`."""

    service: Service | None = None
    limit = 0  # of the last request

    @abstractmethod
    def request(
        self, model: GenerationModel, prompt: Sequence[int], limit: int, phases: Phases
    ) -> AbstractContextManager[Any]:
        """The process of one request, with its `output`."""

    @abstractmethod
    def scores(self, model: GenerationModel, prompt: Sequence[int], output: list[int]) -> torch.Tensor:
        """What decides about the token after prompt and output, log-probabilities or logits [V], by a fresh pass."""

    def generate(self, model: GenerationModel, prompt: Sequence[int], limit: int, phases: Phases) -> Decoded:
        self.limit = limit
        with self.request(model, prompt, limit, phases) as process:
            if self.service is None:
                trace = follow(process, phases).trace(by_time=False)
            else:
                trace = self.service.trace(self.service.serve(process, phases))
            trace.counters.update(process.counters())
            return Decoded(process.output, trace)

    def gap(
        self, model: GenerationModel, prompt: Sequence[int], output: list[int], expected: list[int]
    ) -> float | None:
        """Of the two best tokens' scores. Steps beside a verification run on fewer cores and a context that is read in
        other portions goes through other kernels, so that float32 may differ at near ties."""
        best = self.scores(model, prompt, expected[: common_prefix(output, expected)]).topk(2).values
        return float(best[0] - best[1])
