"""Iterative RaLM as a process: every k tokens the best passage for the current context is prepended to the prompt
(Ram et al., 2023; section 5.3 of Zhang et al., 2024, naive iterative RaLM serving)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.contracts import GenerationModel, Phases
from methods.decoding.engine.session import Engine
from methods.ralmspec.core.generation import Generation, GenerationStep
from methods.ralmspec.passages.retriever import PassageCache, PassageRetriever
from methods.ralmspec.passages.tokens import Passages

UNREAD = -2  # passage number while the key-value cache is empty


@dataclass(slots=True)
class PassageStep(GenerationStep):
    """A step of k tokens. passage, read: the passage and the number of context tokens in the reader before the step.
    guess: the speculated passage, -1 for none."""

    passage: int
    read: int
    guess: int = -1


class IterativeRaLM(Generation[PassageStep, NDArray[np.int64]]):
    """One request. The query is the text of the context's last `query_tokens` tokens. A search finds `prefetch`
    passages; the first `passage_tokens` tokens of the best are prepended to the context, and `interval` tokens are
    generated. With a new passage the whole context is encoded again."""

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
        self.passage = UNREAD  # the passage in the reader
        self.read = 0  # tokens of the context in the reader
        self.start = int(self.context[0] == model.start_id)  # the start token stays in front of the passage
        self._before = retriever.bytes_read

    def begin(self) -> PassageStep:
        started = perf_counter()
        with self.phases("encode"):
            text = self.model.tokenizer.decode(self.context[-self.query_tokens :], skip_special_tokens=True)
            query = self.retriever.encode(text)
        step = PassageStep(query, self.reader.mark(), len(self.context), self.passage, self.read)
        step.encode_s = perf_counter() - started
        return step

    def guess(self, step: PassageStep) -> None:
        with self.phases("speculate"):
            step.guess = self.cache.best(step.query)

    def take(self, step: PassageStep) -> None:
        self._generate(step.guess)

    def resolve(self, step: PassageStep, truth: NDArray[np.int64]) -> None:
        self._generate(_first(truth))

    def search(self, queries: Sequence[Any], single_thread: bool, prefetch: bool = True) -> list[NDArray[np.int64]]:
        return self.retriever.search(queries, self.prefetch if prefetch else 1, single_thread)

    def agrees(self, step: PassageStep, truth: NDArray[np.int64]) -> bool:
        return step.guess == _first(truth)

    def learn(self, truths: Sequence[NDArray[np.int64]]) -> None:
        self.cache.insert(truths)

    def searched(self) -> float | None:
        total = self.retriever.bytes_read
        return None if total is None or self._before is None else total - self._before

    def rewind(self, step: PassageStep) -> None:
        super().rewind(step)
        self.passage, self.read = step.passage, step.read

    def _generate(self, passage: int) -> None:
        """Generate `interval` tokens, or fewer if the output ends."""
        with self.phases("generate"):
            unread = self.context[self.read :]
            if passage != self.passage:
                self.reader.clear()
                self.passage = passage
                passage_ids = self.passages.tokens(passage, self.passage_tokens)
                unread = [*self.context[: self.start], *passage_ids, *self.context[self.start :]]
            for _ in range(self.interval):
                token = int(self.reader.read(unread).argmax())
                self.read = len(self.context)
                self.context.append(token)
                unread = [token]
                if self.finished:
                    return


def _first(found: NDArray[np.int64]) -> int:
    return int(found[0]) if len(found) else -1
