"""BM25 (Robertson and Zaragoza, 2009) over an index made by bm25s: batched, exact, ties by lowest id.

bm25s tokenises, counts and weighs; the search is compiled here. Its own selects over all passages, breaks ties by
chance and has no batch: consecutive contexts share most of their words, and a batch reads a word's postings once.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from harness.errors import RequestError
from methods.knnlm.threads import Workers
from methods.ralmspec.encoders import TERM
from methods.ralmspec.retrievers import Retriever, RetrieverOptions

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEAST = 8192  # passages that are worth a thread


@dataclass(frozen=True, slots=True)
class Query:
    """Known terms int64 [t] ascending and how often each occurs, float32 [t]."""

    terms: NDArray[np.int64]
    counts: NDArray[np.float32]


def version() -> str:
    """The installed bm25s. Raises `RequestError` when there is none."""
    return str(_bm25s().__version__)


def build_bm25(folder: Path, passages: Sequence[str], options: RetrieverOptions) -> None:
    """Index the passages: weights of every (term, passage), by term and ascending passage."""
    bm25s = _bm25s()
    tokens = bm25s.tokenize(
        list(passages), stopwords="en" if options.stopwords else None, token_pattern=TERM, show_progress=False
    )
    if not any(tokens.ids):
        raise RequestError("no passage holds a word to search by; give other passages")
    index = bm25s.BM25(k1=options.k1, b=options.b, backend="numpy")
    index.index(tokens, show_progress=False)
    starts = index.scores["indptr"].astype(np.int64)
    postings, weights = index.scores["indices"].astype(np.int32), index.scores["data"].astype(np.float32)
    term = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    order = np.lexsort((postings, term))
    terms = {word: number for word, number in index.vocab_dict.items() if word}
    (folder / "terms.json").write_text(json.dumps({"terms": terms, "passages": len(passages)}), encoding="utf-8")
    for name, array in (("starts", starts), ("postings", postings[order]), ("weights", weights[order])):
        np.save(folder / f"{name}.npy", array)


class Bm25Retriever(Retriever):
    """An opened BM25 index."""

    def __init__(self, folder: Path) -> None:
        meta = json.loads((folder / "terms.json").read_text(encoding="utf-8"))
        self.terms: dict[str, int] = meta["terms"]
        self.passages: int = meta["passages"]
        self.starts, self.postings, self.weights = (
            np.load(folder / f"{name}.npy") for name in ("starts", "postings", "weights")
        )
        self.workers = Workers()
        self._split = re.compile(TERM).findall

    def encode(self, text: str) -> Query:
        counts = Counter(self.terms[word] for word in self._split(text.lower()) if word in self.terms)
        terms = sorted(counts)
        return Query(np.asarray(terms, np.int64), np.asarray([counts[term] for term in terms], np.float32))

    def search(self, queries: Sequence[Any], k: int, aside: bool = False) -> list[NDArray[np.int64]]:
        k = min(k, self.passages)
        terms = np.unique(np.concatenate([query.terms for query in queries]))
        counts = np.zeros((len(terms), len(queries)), np.float32)
        for column, query in enumerate(queries):
            counts[np.searchsorted(terms, query.terms), column] = query.counts
        threads = 1 if aside else max(1, min(self.workers.count, self.passages // LEAST))
        edges = np.linspace(0, self.passages, threads + 1).astype(np.int64)

        def part(number: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
            scores, ids = np.zeros((len(queries), k), np.float32), np.full((len(queries), k), -1, np.int64)
            low, high = edges[number], edges[number + 1]
            _search(self.starts, self.postings, self.weights, terms, counts, low, high, scores, ids)
            return scores, ids

        parts = self.workers.map(part, range(threads)) if threads > 1 else [part(0)]
        scores, ids = (np.concatenate([one[i] for one in parts], axis=1) for i in (0, 1))
        order = np.lexsort((ids, -scores), axis=-1)
        return [row[at][row[at] >= 0][:k] for row, at in zip(ids, order, strict=True)]

    def score(self, query: Query, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        out = np.zeros(len(ids), np.float32)
        _score(self.starts, self.postings, self.weights, query.terms, query.counts, ids, out)
        return np.where(out > 0, out, -np.inf).astype(np.float64)


@njit(nogil=True, cache=True)
def _search(starts, postings, weights, terms, counts, low, high, scores, ids):  # type: ignore[no-untyped-def]
    """Write the best passages of low .. high - 1 to scores, ids [s, k], best first, -1 where there are fewer.

    A passage's sum runs over the terms in ascending order, the same in any batch and any range, and as in `_score`:
    a term that a query lacks adds exactly zero.
    """
    batch, k = scores.shape
    sums = np.zeros((high - low, batch), np.float32)
    for t in range(terms.size):
        begin, end = starts[terms[t]], starts[terms[t] + 1]
        begin += np.searchsorted(postings[begin:end], low)
        for p in range(begin, end):
            passage = postings[p]
            if passage >= high:
                break
            row, weight = sums[passage - low], weights[p]
            for j in range(batch):
                row[j] += weight * counts[t, j]
    for j in range(batch):
        held = 0
        worst = np.float32(0.0)  # a passage without any of the words is never found
        for passage in range(high - low):
            value = sums[passage, j]
            if value > worst:  # an equal one came with a lower id
                place = min(held, k - 1)
                while place > 0 and scores[j, place - 1] < value:
                    scores[j, place] = scores[j, place - 1]
                    ids[j, place] = ids[j, place - 1]
                    place -= 1
                scores[j, place] = value
                ids[j, place] = passage + low
                held = min(held + 1, k)
                if held == k:
                    worst = scores[j, k - 1]


@njit(nogil=True, cache=True)
def _score(starts, postings, weights, terms, counts, ids, out):  # type: ignore[no-untyped-def]
    for i in range(ids.size):
        total = np.float32(0.0)
        for t in range(terms.size):
            begin, end = starts[terms[t]], starts[terms[t] + 1]
            place = begin + np.searchsorted(postings[begin:end], ids[i])
            if place < end and postings[place] == ids[i]:
                total += weights[place] * counts[t]
        out[i] = total


def _bm25s() -> Any:
    try:
        import bm25s
    except ImportError as error:
        raise RequestError("bm25s is not installed: pip install bm25s, or use retriever=exact") from error
    return bm25s
