"""Retrieval by passage vectors: exact search, and search of a graph or of inverted lists.

A batched product may round differently from a single one. So search results are ranked again by a score that depends on
query and passage alone; ties: by id. Passages are ranked by distance, which gives the order of inner products: an extra
column makes all passage vectors equally long (`encode_passages`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from methods.nearest.distances import ranked, unrounded_distances
from methods.nearest.index import NeighborIndex
from methods.nearest.vectors import Vectors
from methods.ralmspec.passages.encoders import Encoder
from methods.ralmspec.passages.retriever import PassageRetriever

FEW, MANY = 8, 64  # least and most results of an approximate search that are ranked again


class DenseRetriever(PassageRetriever):
    """`exact`, `hnsw` and `ivf` over passage vectors. Of an approximate search the best `beam` are ranked again.
    Vectors after those of the `passages` are padding of an exact search."""

    def __init__(self, vectors: Vectors, passages: int, index: NeighborIndex, encoder: Encoder, ef: int) -> None:
        self.vectors = vectors
        self.passages = passages
        self.index = index
        self.encoder = encoder
        self.beam = min(max(ef, FEW), MANY, vectors.entries)
        self.alone = index.single_threaded()
        self._others = 0  # bytes read by the encoder and for scores

    @property
    def bytes_read(self) -> int:
        return self._others + sum(index.bytes_read for index in {self.index, self.alone})

    def encode(self, text: str) -> NDArray[np.float32]:
        self._others += self.encoder.bytes
        return np.append(self.encoder.query(text), np.float32(0))

    def search(self, queries: Sequence[Any], k: int, single_thread: bool = False) -> list[NDArray[np.int64]]:
        index = self.alone if single_thread else self.index
        if index.exact_ranking:  # ranks by the same distances itself
            return self._exact(index, np.stack(queries), k)
        return self._walk(index, np.stack(queries), k)

    def _exact(self, index: NeighborIndex, queries: NDArray[np.float32], k: int) -> list[NDArray[np.int64]]:
        """The k best passages. Where padding is among the best k vectors, a search for more follows."""
        wanted = min(k, self.passages)
        while True:
            found = [ids[(ids >= 0) & (ids < self.passages)][:wanted] for ids in index.search(queries, k)[1]]
            if all(len(ids) == wanted for ids in found):
                return found
            k *= 2

    def _walk(self, index: NeighborIndex, queries: NDArray[np.float32], k: int) -> list[NDArray[np.int64]]:
        """The best passage must not depend on k, but a graph search visits more nodes for a larger k. So every search
        asks for `beam` passages; if k exceeds it, a second search only appends to them."""
        reached = index.search(queries, self.beam)[1]
        self._others += reached.size * self.vectors.dimension * self.vectors.keys.itemsize
        found = [ids[ids >= 0][:k] for ids in ranked(unrounded_distances(self.vectors, queries, reached), reached)[1]]
        if k <= self.beam:
            return found
        more = index.search(queries, k)[1]
        return [
            np.concatenate([best, ids[(ids >= 0) & ~np.isin(ids, best)]])[:k]
            for best, ids in zip(found, more, strict=True)
        ]

    def score(self, query: NDArray[np.float32], ids: NDArray[np.int64]) -> NDArray[np.float64]:
        self._others += ids.size * self.vectors.dimension * self.vectors.keys.itemsize
        scores: NDArray[np.float64] = -unrounded_distances(self.vectors, query[None], ids[None])[0]
        return scores
