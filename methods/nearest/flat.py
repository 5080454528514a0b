"""Exact search on the CPU: scores by blocked products, a bound per query, exact distances of the few that remain.

1. The keys are split among threads. A thread processes its part block by block: one product (`torch.mm`; of one query
   in bfloat16, or up to 16 in float32, a compiled loop), then one compiled scan. The scan keeps entries whose score
   does not exceed the query's k-th best score so far plus a slack of twice the scores' error bound
   (`methods.nearest.scores`). Only about k (1 + ln(N / k)) of N entries enter the pool, so the scan is one pass over
   scores that are still in cache.
2. Full pools are pruned to that bound. If more entries than fit are within the slack of the k-th best (duplicated
   text), their exact distances decide.
3. The distances of the remaining entries are computed from the stored keys in float64, in an order that does not
   depend on the batch, and sorted, ties by lowest id. So a query's answer does not depend on its batch, the number of
   threads or the precision of the products.

Profile (1M x 256 keys, k = 1024, 64 queries, one thread with AVX-512 BF16; processor time per query): 3.1 ms, of which
the product takes 1.5; a float32 product alone takes 6.3 ms. At batch 1 nearly all time is reading the keys. On two
threads of a Xeon a search of 1,140,928 x 385 keys in bfloat16 takes 54 ms with the loop, 83 by `torch.mm`. In float32
`torch.mm` takes as long again for a second and a third query; the loop reads the keys once for all of them.
Milliseconds of a search of 140,928 x 256 keys, k = 20 (two threads of an AMD EPYC, AVX2; not tried with AVX-512):

| queries | 1 | 2 | 3 | 4 | 8 | 16 | 24 | 32 |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
| `torch.mm` | 16 | 26 | 36 | 25 | 32 | 41 | 59 | 55 |
| the loop | 10 | 12 | 11 | 11 | 19 | 25 | 37 | 49 |
"""

from __future__ import annotations

import copy
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from harness.common.training.precision import fast_precision
from methods.nearest import kernels
from methods.nearest.index import NeighborIndex, finite
from methods.nearest.scores import open_scores
from methods.nearest.threads import Workers
from methods.nearest.vectors import Vectors

TILE = 256  # queries searched at once
PRODUCT = 1 << 20  # scores of one product: they stay in the thread's cache until they are scanned
ENTRIES = 4096, 65536  # least and most keys per product
FEW = 16  # most queries whose products with float32 keys the compiled loop makes; at 32 it leads by little


class FlatIndex(NeighborIndex):
    """Exact neighbours by scanning every key; see the module's docstring."""

    exact_ranking = True

    def __init__(self, vectors: Vectors, memory_gb: float = 8.0, dtype: torch.dtype | None = None) -> None:
        """dtype: of the products, float32 or bfloat16; by default the faster on this processor."""
        self.vectors = vectors
        self.scores = open_scores(vectors, dtype or fast_precision("cpu") or torch.float32, memory_gb)
        self.bytes = self.scores.bytes
        self.workers = Workers()
        self._halves = vectors.keys.view(np.uint16)

    def load(self) -> None:
        self.scores.load()

    def single_threaded(self) -> FlatIndex:
        alone = copy.copy(self)
        alone.workers = Workers(1)
        return alone

    def search(self, queries: NDArray[np.float32], k: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        queries = finite(queries)
        self.load()
        k = min(k, self.vectors.entries)
        distances, ids = np.empty((len(queries), k), np.float32), np.empty((len(queries), k), np.int64)
        for low in range(0, len(queries), TILE):
            tile = slice(low, low + TILE)
            self._search(queries[tile], k, distances[tile], ids[tile])
            self.bytes_read += self.vectors.entries * (self.vectors.dimension * self.scores.dtype.itemsize + 4)
        return distances, ids

    def _search(
        self, queries: NDArray[np.float32], k: int, distances: NDArray[np.float32], ids: NDArray[np.int64]
    ) -> None:
        scaled, error = self.scores.prepare(queries)
        parts = self.workers.map(
            lambda span: self._candidates(queries, scaled, _Pools(len(queries), k, 2 * error), *span),
            _shares(self.vectors.entries, self.workers.count, ENTRIES[0]),
        )

        def rank(span: tuple[int, int]) -> None:
            for row in range(*span):
                scores = np.concatenate([part.scores[row, : part.count[row]] for part in parts])
                found = np.concatenate([part.ids[row, : part.count[row]] for part in parts])
                found = found[: kernels.prune(scores, found, len(found), k, 2 * error[row])[0]]
                kernels.best(self._distances(found, queries[row]), found, k, distances[row], ids[row])

        self.workers.map(rank, _shares(len(queries), self.workers.count, 1))

    def _candidates(
        self, queries: NDArray[np.float32], scaled: torch.Tensor, pools: _Pools, low: int, high: int
    ) -> _Pools:
        """The candidates of queries [n, d] among the entries low .. high - 1."""
        n = len(queries)
        size = min(max(PRODUCT // n, ENTRIES[0]), ENTRIES[1], high - low)
        product, wide = torch.empty(n * size, dtype=scaled.dtype), torch.empty(n * size)
        for first, keys, norms in self.scores.blocks(low, high, size):
            scores = wide[: n * len(keys)].view(n, len(keys))
            if keys.dtype == torch.float32 and n <= FEW:
                kernels.products(keys.numpy(), scaled.numpy(), scores.numpy())
            elif keys.dtype == torch.float32:
                torch.mm(scaled, keys.T, out=scores)
            elif n == 1:
                kernels.widened_products(keys.view(torch.uint16).numpy(), scaled[0].float().numpy(), scores[0].numpy())
            else:
                scores.copy_(torch.mm(scaled, keys.T, out=product[: n * len(keys)].view(n, len(keys))))
            pools.position[:] = 0
            while kernels.offer(scores.numpy(), norms, first, *pools.arguments()):
                for row in np.flatnonzero(pools.position < len(norms)).tolist():
                    self._resolve(pools, row, queries[row])
        return pools

    def _resolve(self, pools: _Pools, row: int, query: NDArray[np.float32]) -> None:
        """Reduce one overfull pool to the k nearest by exact distance, in order of ids. The worst of their scores is
        the new bound: an entry nearer than one of them has a score of at most this bound plus the slack."""
        count = int(pools.count[row])
        exact = self._distances(pools.ids[row, :count], query)
        keep = np.sort(np.argsort(exact, kind="stable")[: pools.k])
        pools.ids[row, : pools.k] = pools.ids[row, keep]
        pools.scores[row, : pools.k] = pools.scores[row, keep]
        pools.count[row] = pools.k
        pools.bound[row] = pools.scores[row, : pools.k].max() + pools.slack[row]

    def _distances(self, ids: NDArray[np.int64], query: NDArray[np.float32]) -> NDArray[np.float64]:
        out = np.empty(len(ids), np.float64)
        kernels.distances(self._halves, ids, query, out)
        return out


def _shares(total: int, parts: int, least: int) -> list[tuple[int, int]]:
    """(low, high) of at most `parts` equal parts of `total`, none smaller than `least` unless there is but one."""
    edges = np.linspace(0, total, max(min(parts, total // least), 1) + 1).astype(int).tolist()
    return list(pairwise(edges))


class _Pools:
    """Candidates of n queries: scores and ids [n, capacity] in order of ids. Row i uses its first count[i] entries."""

    def __init__(self, n: int, k: int, slack: NDArray[np.float32]) -> None:
        capacity = 4 * k + 4 * kernels.BLOCK
        self.k = k
        self.slack = slack
        self.scores = np.empty((n, capacity), np.float32)
        self.ids = np.empty((n, capacity), np.int64)
        self.count = np.zeros(n, np.int64)
        self.bound = np.full(n, np.inf, np.float32)
        self.position = np.zeros(n, np.int64)

    def arguments(self) -> tuple[object, ...]:
        """In the order that `kernels.offer` takes them."""
        return self.k, self.slack, self.bound, self.scores, self.ids, self.count, self.position
