"""A retriever's latency per query against the batch size (Zhang et al., 2024, appendix A.1, Figure 6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from harness.common.documents import content_hash
from harness.common.progress import Progress
from harness.contracts import Artifacts
from harness.contracts.analyses import TimedAnalysis
from harness.contracts.ratios import Ratio
from harness.contracts.tasks import RetrievalSetting
from harness.plan.registry import analysis
from methods.ralmspec.passages.opening import build_retriever, open_retriever, passages_of
from methods.ralmspec.passages.retriever import PassageRetriever, RetrieverOptions


@analysis("retriever-latency", summary="milliseconds of a batched passage search, for each query of it")
class RetrieverLatency(RetrieverOptions, TimedAnalysis):
    """Latency of searching `batch` queries at once against the same queries one by one. The queries are successive
    contexts of one text, as in a verification: `query_words` words each, four words apart. An item is such a batch.

    k: passages per query. batches: batches per timed pass. The retriever's parameters: see `RetrieverOptions`.
    """

    batch: Annotated[int, Field(ge=1)] = 1
    k: Annotated[int, Field(ge=1)] = 20
    batches: Annotated[int, Field(ge=1)] = 4
    query_words: Annotated[int, Field(ge=1)] = 25

    @property
    def ratios(self) -> Mapping[str, Ratio]:
        """Milliseconds: `latency_ms` of a batch, `latency_per_query_ms`, `sequential_ms` of its queries one by one.
        `batching_gain`: time of the queries one by one over that of the batch."""
        return {
            "latency_ms": Ratio({"method": 1e3}, per={"items": 1}),
            "latency_per_query_ms": Ratio({"method": 1e3}, per={"items": self.batch}),
            "sequential_ms": Ratio({"baseline": 1e3}, per={"items": 1}),
            "batching_gain": Ratio({"baseline": 1}, per={"method": 1}, equal=1),
        }

    def fit(self, setting: RetrievalSetting, artifacts: Artifacts, progress: Progress) -> None:
        """Build the retriever. Raises `RequestError` when the task has no passages of text."""
        passages = passages_of(setting.knowledge)
        build_retriever(passages, content_hash(passages), artifacts, self)
        artifacts.values.update(passages=len(passages))

    def open(self, setting: RetrievalSetting, artifacts: Artifacts) -> None:
        self.passages: Sequence[str] = setting.knowledge
        self.opened: PassageRetriever = open_retriever(artifacts, self)

    def items(self) -> tuple[int, int]:
        """One batch per passage: its text begins with that passage."""
        return len(self.passages), self.batches

    def inputs(self, items: NDArray[np.int64]) -> list[list[Any]]:
        return [self._queries(item) for item in items.tolist()]

    def _queries(self, item: int) -> list[Any]:
        """`batch` contexts of one text: this passage, continued by others drawn with `item` as the seed."""
        rng, text = np.random.default_rng(item), self.passages[item].split()
        while len(text) < self.query_words + 4 * self.batch:
            text += self.passages[int(rng.integers(len(self.passages)))].split() or ["nothing"]
        return [self.opened.encode(" ".join(text[4 * i : 4 * i + self.query_words])) for i in range(self.batch)]

    def baseline(self, given: list[Any]) -> list[NDArray[np.int64]]:
        return [self.opened.search([query], self.k)[0] for query in given]

    def method(self, given: list[Any]) -> list[NDArray[np.int64]]:
        return self.opened.search(given, self.k)

    def answers(self, call: list[NDArray[np.int64]]) -> list[Sequence[int]]:
        """The passages found for each query, as a sorted list: order does not matter."""
        return [sorted(found.tolist()) for found in call]
