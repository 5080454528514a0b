"""The two ways of serving a request, as base classes of methods: sequentially, or by speculation."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field

from harness.common.errors import RequestError
from harness.contracts import Artifacts, Decoded, GenerationModel, Phases, RetrievalGeneration
from harness.contracts.answers import common_prefix
from methods.ralmspec.core.record import Record
from methods.ralmspec.core.scheduler import OS3, Fixed
from methods.ralmspec.core.speculation import Process, Speculation, follow
from methods.ralmspec.core.worker import Worker

Scheduling = Literal["fixed", "os3", "paper"]
GAMMA_MAX = {"os3": 0.98, "paper": 0.6}


def room(model: GenerationModel, prompt: Sequence[int], limit: int) -> int:
    """Tokens of the model's window next to prompt (the start token if it is empty) and output. Raises `RequestError`
    when these do not fit."""
    left = model.window - limit - max(len(prompt), 1)
    if left < 0:
        raise RequestError(
            f"a prompt of {len(prompt)} tokens and an output of {limit} exceed the window of {model.window}; "
            "shorten the prompt or lower the limit"
        )
    return left


class Sequential(RetrievalGeneration):
    """Serves requests with a search before every step."""

    depends_on_timing = False  # whether counts of a request depend on measured times

    @abstractmethod
    def request(
        self, model: GenerationModel, prompt: Sequence[int], limit: int, phases: Phases
    ) -> AbstractContextManager[Any]:
        """The process of one request, with its `output`."""

    @abstractmethod
    def scores(self, model: GenerationModel, prompt: Sequence[int], output: list[int], limit: int) -> torch.Tensor:
        """Scores [V] of the token after prompt and output, log-probabilities or logits, by a fresh forward pass. limit:
        of the request."""

    def serve(self, process: Process[Any, Any], phases: Phases) -> Record:
        """One request, to its end."""
        return follow(process, phases)

    def generate(self, model: GenerationModel, prompt: Sequence[int], limit: int, phases: Phases) -> Decoded:
        with self.request(model, prompt, limit, phases) as process:
            trace = self.serve(process, phases).trace(self.depends_on_timing)
            trace.counters.update(process.counters())
            (trace.timing_counters if self.depends_on_timing else trace.counters).update(process.bytes_read())
            return Decoded(process.output, trace)

    def gap(
        self, model: GenerationModel, prompt: Sequence[int], output: list[int], expected: list[int], limit: int
    ) -> float | None:
        """How far the lower of the two tokens is below the best one where the outputs part, and there alone, since each
        place costs a search. Infinite where one of them ends there, and for an end before the limit without an end
        token. float32 may differ at near ties: steps during a verification run on fewer cores, and a context read in
        other chunks uses other kernels."""
        place = common_prefix(output, expected)
        if place in (len(output), len(expected)) or (len(output) < limit and output[-1] not in model.eos_ids):
            return math.inf
        scores = self.scores(model, prompt, expected[:place], limit)
        return float(scores.max() - scores[[output[place], expected[place]]].min())


@dataclass(kw_only=True)
class Speculative(Sequential):
    """Serves the same requests by speculation. What OS3 has measured outlasts a request, until the method is opened
    anew.

    scheduler: `fixed` with `stride`, `os3` (S) with `gamma_max` (by default 0.98), or `paper`, which is os3 with a
    gamma_max of 0.6. asynchronous: A. Raises `RequestError` for a gamma_max with `paper`.
    """

    redo: ClassVar[bool]  # whether repeating a step with the true result costs a generation
    scheduler: Scheduling = "fixed"
    stride: Annotated[int, Field(ge=0)] = 3
    gamma_max: Annotated[float, Field(ge=0, lt=1)] | None = None
    asynchronous: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scheduler == "paper" and self.gamma_max is not None:
            raise RequestError(
                f"scheduler=paper has a gamma_max of its own, {GAMMA_MAX['paper']}; give scheduler=os3 with "
                f"gamma_max={self.gamma_max}, or leave it out"
            )
        self.depends_on_timing = self.asynchronous or self.scheduler != "fixed"  # OS3's strides follow measured times
        self.record = Record()  # of the last request

    def open(self, subject: GenerationModel, artifacts: Artifacts) -> None:
        super().open(subject, artifacts)
        self.strides = Fixed(self.stride, self.asynchronous)
        if self.scheduler != "fixed":
            gamma_max = GAMMA_MAX[self.scheduler] if self.gamma_max is None else self.gamma_max
            self.strides = OS3(asynchronous=self.asynchronous, redo=self.redo, gamma_max=gamma_max)

    def serve(self, process: Process[Any, Any], phases: Phases) -> Record:
        """One request, to its end. A worker thread ends with it."""
        with Worker() as worker:
            self.record = Speculation(process, self.strides, phases, worker).run()
        return self.record
