"""BM25 (Robertson and Zaragoza, 2009) over an index made by bm25s: batched, exact, ties by lowest id.

bm25s tokenises, counts and weighs; the search is compiled here. The search of bm25s selects over all passages, breaks
ties at random and has no batches. A batch reads each word's postings once, and consecutive contexts share most words.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import csc_array, load_npz, save_npz

from harness.common.errors import RequestError
from methods.nearest.threads import Workers
from methods.ralmspec.passages.encoders import TERM
from methods.ralmspec.passages.retriever import PassageRetriever, RetrieverOptions

LEAST = 8192  # least passages per thread
SUMS = 1 << 16  # sums kept at once: they stay in a core's cache until the best are selected


@dataclass(frozen=True, slots=True)
class Query:
    """Known terms int64 [t] ascending and their counts float32 [t]."""

    terms: NDArray[np.int64]
    counts: NDArray[np.float32]


def build_bm25(folder: Path, passages: Sequence[str], options: RetrieverOptions) -> None:
    """Index the passages: a weight for every (term, passage), sorted by term, then passage. Raises `RequestError` when
    no passage has a term."""
    import bm25s

    tokens = bm25s.tokenize(
        list(passages), stopwords="en" if options.stopwords else None, token_pattern=TERM, show_progress=False
    )
    if not any(tokens.ids):
        raise RequestError("no passage holds a word to search by; give other passages")
    index = bm25s.BM25(k1=options.k1, b=options.b, backend="numpy")
    index.index(tokens, show_progress=False)
    weights, ids, starts = (index.scores[part] for part in ("data", "indices", "indptr"))
    narrow = np.int32 if len(ids) < 1 << 31 else np.int64
    parts = weights.astype(np.float32), ids.astype(narrow), starts.astype(narrow)
    postings = csc_array(parts, (len(passages), len(starts) - 1))
    postings.sort_indices()
    save_npz(folder / "postings.npz", postings, compressed=False)
    terms = {word: number for word, number in index.vocab_dict.items() if word}
    (folder / "terms.json").write_text(json.dumps(terms), encoding="utf-8")


class Bm25Retriever(PassageRetriever):
    """An opened BM25 index."""

    def __init__(self, folder: Path) -> None:
        self.terms: dict[str, int] = json.loads((folder / "terms.json").read_text(encoding="utf-8"))
        by_term = load_npz(folder / "postings.npz")  # each term's passages ascending
        self.passages, terms = by_term.shape
        self.starts, self.postings, self.weights = by_term.indptr.astype(np.int64), by_term.indices, by_term.data
        self.workers = Workers()
        by_passage = by_term.tocsr()  # each passage's terms ascending
        self.offsets, self.word_weights = by_passage.indptr.astype(np.int64), by_passage.data
        self.words = by_passage.indices.astype(np.int32, copy=False)
        self._counts = np.zeros(terms, np.float32)  # of the query being scored; zeros between calls
        self._split = re.compile(TERM).findall
        word = Query(np.zeros(1, np.int64), np.ones(1, np.float32))
        for batch in _KERNELS:  # compile now: waiting for the compiler would distort the times of verifications
            self.search([word] * batch, 1)
        self.score(word, np.zeros(1, np.int64))

    def encode(self, text: str) -> Query:
        counts = Counter(self.terms[word] for word in self._split(text.lower()) if word in self.terms)
        terms = sorted(counts)
        return Query(np.asarray(terms, np.int64), np.asarray([counts[term] for term in terms], np.float32))

    def search(self, queries: Sequence[Any], k: int, single_thread: bool = False) -> list[NDArray[np.int64]]:
        k = min(k, self.passages)
        terms = np.unique(np.concatenate([query.terms for query in queries]))
        width = next((n for n in _KERNELS if n >= len(queries)), -8 * (-len(queries) // 8))
        counts = np.zeros((len(terms), width), np.float32)  # unused columns stay zero: no passage matches
        for column, query in enumerate(queries):
            counts[np.searchsorted(terms, query.terms), column] = query.counts
        threads = 1 if single_thread else max(1, min(self.workers.count, self.passages // LEAST))
        edges = np.linspace(0, self.passages, threads + 1).astype(np.int64)

        def part(number: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
            scores, ids = np.zeros((width, k), np.float32), np.full((width, k), -1, np.int64)
            low, high = edges[number], edges[number + 1]
            search = _KERNELS[min(width, 8)]
            search(self.starts, self.postings, self.weights, terms, counts, low, high, SUMS, scores, ids)
            return scores[: len(queries)], ids[: len(queries)]

        parts = self.workers.map(part, range(threads)) if threads > 1 else [part(0)]
        scores, ids = (np.concatenate([one[i] for one in parts], axis=1) for i in (0, 1))
        order = np.lexsort((ids, -scores), axis=-1)
        return [row[at][row[at] >= 0][:k] for row, at in zip(ids, order, strict=True)]

    def score(self, query: Query, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        out = np.zeros(len(ids), np.float32)
        self._counts[query.terms] = query.counts
        _score(self.offsets, self.words, self.word_weights, self._counts, ids, out)
        self._counts[query.terms] = 0
        return np.where(out > 0, out, -np.inf).astype(np.float64)


@njit(nogil=True, cache=True)
def _insert(values, passage, worst, held, scores, ids):  # type: ignore[no-untyped-def]
    """Insert a passage into the sorted best of every query whose worst it exceeds."""
    k = scores.shape[1]
    for j in range(values.size):
        if values[j] > worst[j]:
            at = min(held[j], k - 1)
            while at > 0 and scores[j, at - 1] < values[j]:
                scores[j, at] = scores[j, at - 1]
                ids[j, at] = ids[j, at - 1]
                at -= 1
            scores[j, at] = values[j]
            ids[j, at] = passage
            held[j] = min(held[j] + 1, k)
            if held[j] == k:
                worst[j] = scores[j, k - 1]


def _kernel(width: int) -> Any:
    """The search of `width` queries, a compile-time constant; width 0: of any number of queries."""

    @njit(nogil=True, cache=True)
    def search(starts, postings, weights, terms, counts, low, high, block, scores, ids):  # type: ignore[no-untyped-def]
        """Write the best passages of low .. high - 1 to scores, ids [s, k], best first, -1 if there are fewer.

        A passage's sum runs over the terms in ascending order, as in `_score`, so it is the same in any batch and
        range: a term that a query lacks adds exactly zero. block: sums kept at once.
        """
        batch = width or scores.shape[0]
        size = max(block // batch, 1)
        sums = np.empty((min(size, high - low), batch), np.float32)
        place = np.empty(terms.size, np.int64)  # index of each term's next posting
        for t in range(terms.size):
            begin, end = starts[terms[t]], starts[terms[t] + 1]
            place[t] = begin + np.searchsorted(postings[begin:end], low)
        held = np.zeros(batch, np.int64)
        worst = np.zeros(batch, np.float32)  # zero: a passage with none of the terms is never found
        for first in range(low, high, size):
            last = min(first + size, high)
            sums[: last - first] = 0
            for t in range(terms.size):
                p, end = place[t], starts[terms[t] + 1]
                if batch == 1:
                    while p < end and postings[p] < last:
                        sums[postings[p] - first, 0] += weights[p] * counts[t, 0]
                        p += 1
                while p < end and postings[p] < last:
                    row, weight = postings[p] - first, weights[p]
                    for j in range(batch):
                        sums[row, j] += weight * counts[t, j]
                    p += 1
                place[t] = p
            if batch == 1:
                least = worst[0]
                for row in range(last - first):
                    if sums[row, 0] > least:
                        _insert(sums[row], first + row, worst, held, scores, ids)
                        least = worst[0]
                continue
            for row in range(last - first):
                better = 0
                for j in range(batch):
                    better += sums[row, j] > worst[j]  # strict: of equal scores the lower id came first
                if better:
                    _insert(sums[row], first + row, worst, held, scores, ids)

    return search


# A loop over two or four queries is unrolled if their number is a compile-time constant; eight fill a vector. One
# thread, 1.1 million passages: 5.7 ms for one query, 6.9 for two (11.3 by the general loop), 11.1 for four (16.0), 15.3
# for eight, 15.3 for six padded to eight (21.7).
_ANY = _kernel(0)
_KERNELS = {1: _ANY, 2: _kernel(2), 4: _kernel(4), 8: _ANY}


@njit(nogil=True, cache=True)
def _score(offsets, words, weights, counts, ids, out):  # type: ignore[no-untyped-def]
    for i in range(ids.size):
        total = np.float32(0.0)
        for p in range(offsets[ids[i]], offsets[ids[i] + 1]):
            total += weights[p] * counts[words[p]]
        out[i] = total
