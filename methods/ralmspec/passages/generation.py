"""Iterative RaLM as a process: every k tokens the best passage for the current context is prepended to the prompt
(Ram et al., 2023; section 5.3 of Zhang et al., 2024, naive iterative RaLM serving)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from harness.contracts import GenerationModel, Phases
from methods.decoding.engine.session import Engine
from methods.ralmspec.core.generation import Generation, GenerationStep
from methods.ralmspec.passages.retriever import PassageCache, PassageRetriever
from methods.ralmspec.passages.tokens import Passages

UNREAD = -2  # passage number while the key-value cache is empty


@dataclass(slots=True)
class PassageStep(GenerationStep):
    """A step of k tokens. passage: the one in the key-value cache before the step."""

    passage: int


class IterativeRaLM(Generation[PassageStep, NDArray[np.int64]]):
    """One request. The query is the text of the context's last `query_tokens` tokens. A search finds `prefetch`
    passages; the first `passage_tokens` tokens of the best are prepended to the context, and `interval` tokens are
    generated. With a new passage the whole context is encoded again. An answer is the best passage's number, -1 for
    none."""

    def __init__(
        self,
        model: GenerationModel,
        engine: Engine,
        retriever: PassageRetriever,
        passages: Passages,
        prompt: Sequence[int],
        limit: int,
        phases: Phases,
        *,
        interval: int,
        prefetch: int,
        query_tokens: int,
        passage_tokens: int,
        cache: PassageCache | None = None,
    ) -> None:
        """cache: one that earlier requests filled; a new one by default."""
        super().__init__(model, engine, prompt, limit, phases)
        self.retriever = retriever
        self.passages = passages
        self.interval = interval
        self.prefetch = prefetch
        self.query_tokens = query_tokens
        self.passage_tokens = passage_tokens
        self.cache = cache if cache is not None else PassageCache(retriever)
        self.passage = UNREAD  # in the key-value cache, with all of the context but its last token
        self.start = int(self.context[0] == model.start_id)  # the start token stays in front of the passage
        self._before = retriever.bytes_read

    def begin(self) -> PassageStep:
        started = perf_counter()
        with self.phases("encode"):
            text = self.model.tokenizer.decode(self.context[-self.query_tokens :], skip_special_tokens=True)
            query = self.retriever.encode(text)
        step = PassageStep(query, self.mark(), self.passage)
        step.encode_s = perf_counter() - started
        return step

    def guess(self, step: PassageStep) -> int:
        with self.phases("speculate"):
            return self.cache.best(step.query)

    def answer(self, step: PassageStep, truth: NDArray[np.int64]) -> int:
        return int(truth[0]) if len(truth) else -1

    def take(self, step: PassageStep, answer: int) -> None:
        """Generate `interval` tokens, or fewer if the output ends."""
        with self.phases("generate"):
            for _ in range(self.interval):
                self.context.append(int(self.logits(answer).argmax()))
                if self.finished:
                    return

    def logits(self, passage: int) -> torch.Tensor:
        """Logits [V] of the next token with this passage before the prompt."""
        unread = self.context[-1:]
        if passage != self.passage:
            self.clear()
            self.passage = passage
            passage_ids = self.passages.tokens(passage, self.passage_tokens)
            unread = [*self.context[: self.start], *passage_ids, *self.context[self.start :]]
        return self.feed(unread)

    def search(self, queries: Sequence[Any], single_thread: bool, prefetch: bool = True) -> list[NDArray[np.int64]]:
        return self.retriever.search(queries, self.prefetch if prefetch else 1, single_thread)

    def learn(self, truths: Sequence[NDArray[np.int64]]) -> None:
        self.cache.insert(truths)

    def searched(self) -> float | None:
        total = self.retriever.bytes_read
        return None if total is None or self._before is None else total - self._before

    def rewind(self, step: PassageStep) -> None:
        super().rewind(step)
        self.passage = step.passage
