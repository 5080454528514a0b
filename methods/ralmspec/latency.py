"""How a retriever's latency per query falls with the batch (Zhang et al., 2024, appendix A.1, Figure 6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from harness.contracts import Artifacts
from harness.errors import RequestError
from harness.progress import Progress
from harness.registry import analysis
from harness.settings import Measure, RetrievalSetting
from harness.statistics import block_bootstrap, mean_interval
from methods.knnlm.ranges import within
from methods.ralmspec.retrieval.retrievers import RetrieverOptions, build_retriever, open_retriever, passages_hash


@analysis("retriever-latency", summary="milliseconds of a batched passage search, for each query of it")
@dataclass(kw_only=True)
class RetrieverLatency(RetrieverOptions):
    """Latency of searching `batch` queries at once: successive contexts of one text, as a verification has them, four
    words apart, of `query_words` words each.

    k: passages asked for. repeats: batches. The retriever's parameters: see `RetrieverOptions`.
    """

    batch: int = 1
    k: int = 20
    repeats: int = 30
    query_words: int = 25

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, least in (("batch", 1), ("k", 1), ("repeats", 2), ("query_words", 1)):
            within(f"retriever-latency: {name}", getattr(self, name), least)

    def __call__(self, setting: RetrievalSetting, artifacts: Artifacts, progress: Progress) -> dict[str, Measure]:
        """`latency_per_query_ms` and `latency_ms` (of the batch), means over batches with 95% intervals;
        `sequential_ms`: the same queries one by one; `batching_gain`: how many times as long these take. Which of the
        two comes first alternates. Raises `RequestError` when the task has no passages of text.
        """
        passages = setting.knowledge
        if not len(passages) or not isinstance(passages[0], str):
            raise RequestError(
                "retriever-latency searches passages of text, which this task does not have; use qa-latency"
            )
        build_retriever(passages, passages_hash(passages), artifacts, self)
        opened = open_retriever(artifacts, self)
        rng = np.random.default_rng(0)
        times = np.empty((2, self.repeats))  # together, one by one
        for number in range(-2, self.repeats):  # the first two warm up
            queries = _contexts(passages, opened, self.batch, self.query_words, rng)
            calls = [[queries], [[query] for query in queries]]
            for side in (0, 1) if number % 2 else (1, 0):
                started = perf_counter()
                for call in calls[side]:
                    opened.search(call, self.k)
                times[side, number] = (perf_counter() - started) * 1e3
            progress.update("searches", number + 1, self.repeats, "batches")
        artifacts.values.update(passages=len(passages))
        together, apart = times
        gain = block_bootstrap([apart, together], lambda a, t: a / t, 1) or (None, None)
        means = {"latency_ms": together, "latency_per_query_ms": together / self.batch, "sequential_ms": apart}
        return {
            **{name: Measure(float(v.mean()), *(mean_interval(v) or (None, None))) for name, v in means.items()},
            "batching_gain": Measure(float(apart.mean() / together.mean()), *gain),
        }


def _contexts(passages: Sequence[str], retriever: Any, batch: int, words: int, rng: np.random.Generator) -> list[Any]:
    """Queries of `batch` contexts of a growing text, which begins in a passage drawn at random."""
    text: list[str] = []
    while len(text) < words + 4 * batch:
        text += passages[int(rng.integers(len(passages)))].split() or ["nothing"]
    return [retriever.encode(" ".join(text[4 * i : 4 * i + words])) for i in range(batch)]
