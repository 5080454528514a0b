"""How a retriever's latency per query falls with the batch (Zhang et al., 2024, appendix A.1, Figure 6)."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.contracts import Artifacts
from harness.errors import RequestError
from harness.progress import Progress
from harness.registry import analysis
from harness.settings import Measure, RetrievalSetting
from harness.statistics import block_bootstrap, mean_interval
from methods.ralmspec.retrievers import Kind, RetrieverOptions, build_retriever, open_retriever, passages_hash

if TYPE_CHECKING:
    from numpy.typing import NDArray


@analysis("retriever-latency", summary="milliseconds of a batched passage search, for each query of it")
def retriever_latency(
    setting: RetrievalSetting,
    artifacts: Artifacts,
    progress: Progress,
    *,
    retriever: Kind = "exact",
    batch: int = 1,
    k: int = 20,
    repeats: int = 30,
    query_words: int = 25,
    encoder: str = "lsa",
    dimension: int = 256,
    sample: int = 50_000,
    links: int = 32,
    ef: int = 128,
    k1: float = 0.9,
    b: float = 0.4,
    stopwords: bool = True,
) -> dict[str, Measure]:
    """Latency of searching `batch` queries at once: successive contexts of one text, as a verification has them, four
    words apart. `latency_per_query_ms` and `latency_ms` (of the batch), means over `repeats` batches with 95%
    intervals; `sequential_ms`: the same queries one by one; `batching_gain`: how many times as long these take. Which
    of the two comes first alternates.
    """
    if batch < 1 or k < 1 or repeats < 2:
        raise RequestError(
            f"retriever-latency: batch={batch} and k={k} must be at least 1, repeats={repeats} at least 2"
        )
    if not len(setting.knowledge) or not isinstance(setting.knowledge[0], str):
        raise RequestError("retriever-latency searches passages of text, which this task does not have; use qa-latency")
    options = RetrieverOptions(
        retriever, encoder, dimension=dimension, sample=sample, links=links, ef=ef, k1=k1, b=b, stopwords=stopwords
    )
    passages: Sequence[str] = setting.knowledge
    build_retriever(passages, passages_hash(passages), artifacts, options)
    opened = open_retriever(artifacts, options)
    rng = np.random.default_rng(0)
    times = np.empty((2, repeats))  # together, one by one
    for number in range(-2, repeats):  # the first two warm up
        queries = _contexts(passages, opened, batch, query_words, rng)
        calls = [[queries], [[query] for query in queries]]
        for side in (0, 1) if number % 2 else (1, 0):
            started = perf_counter()
            for call in calls[side]:
                opened.search(call, k)
            times[side, number] = (perf_counter() - started) * 1e3
        progress.update("searches", number + 1, repeats, "batches")
    artifacts.values.update(passages=len(passages))
    together, apart = times
    low, high = block_bootstrap([apart, together], lambda a, t: a / t, 1) or (None, None)
    return {
        "latency_ms": _mean(together),
        "latency_per_query_ms": _mean(together / batch),
        "sequential_ms": _mean(apart),
        "batching_gain": Measure(float(apart.mean() / together.mean()), low, high),
    }


def _contexts(passages: Sequence[str], retriever: Any, batch: int, words: int, rng: np.random.Generator) -> list[Any]:
    """Queries of `batch` contexts of a growing text, which begins in a passage drawn at random."""
    text: list[str] = []
    while len(text) < words + 4 * batch:
        text += passages[int(rng.integers(len(passages)))].split() or ["nothing"]
    return [retriever.encode(" ".join(text[4 * i : 4 * i + words])) for i in range(batch)]


def _mean(values: NDArray[np.float64]) -> Measure:
    low, high = mean_interval(values) or (None, None)
    return Measure(float(values.mean()), low, high)
