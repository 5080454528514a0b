"""Exact search on the CPU: a blocked product, a bound per query, exact distances of the few that remain.

||q - x||^2 = ||q||^2 + ||x||^2 - 2 x.q turns search into matrix products, at the price of cancellation. Three steps
keep the answer exact all the same:

1. Per block of keys, one product (`torch.mm`, all cores) and one compiled scan that keeps what does not exceed the
   query's k-th best score so far plus a slack of twice the worst rounding error of a score: of N entries only about
   k (1 + ln(N / k)) ever touch the pool, so the scan is one pass over scores that are still in cache.
2. Full pools are pruned to that bound. Where more entries than fit lie within rounding of the k-th best (duplicated
   text), their exact distances decide.
3. The distances of the survivors are computed from the keys in float64, in an order that does not depend on the
   batch, and sorted, ties by lowest id. The same query gets the same answer in any batch.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import torch

from harness.progress import Progress
from methods.knnlm import kernels
from methods.knnlm.distances import float32
from methods.knnlm.index import NeighborIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from methods.knnlm.datastore import Datastore

ENTRIES = 8192  # keys per block: their product with a tile of queries stays in the last-level cache
TILE = 128  # queries per product
UNIT = 2.0**-24  # unit roundoff of float32


class FlatIndex(NeighborIndex):
    """Exact neighbours by scanning every key; see the module's docstring."""

    def __init__(self, store: Datastore, memory_gb: float = 8.0) -> None:
        """Hold the keys as float32 when 4 N (d + 1) bytes fit in `memory_gb`, else read them block by block."""
        self.store = store
        self.threads = torch.get_num_threads()
        self._pool = ThreadPoolExecutor(self.threads) if self.threads > 1 else None
        size = 4 * store.entries * (store.dimension + 1)
        self.resident = size <= memory_gb * 1e9
        self.bytes = size if self.resident else 0
        self._keys: NDArray[np.float32] = np.empty((0, store.dimension), np.float32)
        self._norms: NDArray[np.float32] = np.empty(0, np.float32)

    def load(self) -> None:
        if not self.resident or len(self._keys):
            return
        keys = np.empty((self.store.entries, self.store.dimension), np.float32)
        self._norms = np.empty(self.store.entries, np.float32)
        progress = Progress()
        for start, stop in _ranges(self.store.entries, 1 << 16):
            keys[start:stop] = float32(self.store.keys[start:stop])
            self._norms[start:stop] = _norms(keys[start:stop])
            progress.update("keys to memory", stop, self.store.entries, "entries")
        self._keys = keys

    def search(self, queries: NDArray[np.float32], k: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        queries = np.ascontiguousarray(queries, np.float32)
        self.load()
        n, k = len(queries), min(k, self.store.entries)
        if n == 0 or k == 0:
            return np.empty((n, k), np.float32), np.empty((n, k), np.int64)
        pools = _Pools(n, k, self._slack(queries))
        entries = ENTRIES if n > 1 else 8 * ENTRIES
        product = torch.empty(min(n, TILE) * min(entries, self.store.entries))
        scaled = torch.from_numpy(-2.0 * queries)
        for first, keys, norms in self._blocks(entries):
            for low, high in _ranges(n, TILE):
                scores = product[: (high - low) * len(keys)].view(high - low, len(keys))
                if high - low == 1:
                    torch.mv(torch.from_numpy(keys), scaled[low], out=scores[0])
                else:
                    torch.mm(scaled[low:high], torch.from_numpy(keys).T, out=scores)
                self._select(pools.rows(low, high), scores.numpy(), norms, first, queries[low:high])
        return self._rank(pools, queries)

    def _slack(self, queries: NDArray[np.float32]) -> NDArray[np.float32]:
        """Twice the worst rounding error of a score, float32 [n]: d products and sums of terms up to 2 |x||q|, the
        rounded norm, one last sum (Higham 2002, section 3.1)."""
        largest = self.store.largest_norm
        lengths = np.linalg.norm(queries.astype(np.float64), axis=1)
        error = UNIT * (2 * largest**2 + 2 * (self.store.dimension + 2) * largest * lengths)
        slack: NDArray[np.float32] = (2.05 * error).astype(np.float32)
        return slack

    def _blocks(self, entries: int) -> Iterator[tuple[int, NDArray[np.float32], NDArray[np.float32]]]:
        for start, stop in _ranges(self.store.entries, entries):
            if self.resident:
                yield start, self._keys[start:stop], self._norms[start:stop]
            else:
                keys = float32(self.store.keys[start:stop])
                yield start, keys, _norms(keys)

    def _select(
        self,
        pools: _Pools,
        scores: NDArray[np.float32],
        norms: NDArray[np.float32],
        first: int,
        queries: NDArray[np.float32],
    ) -> None:
        pools.position[:] = 0

        def offer(low: int, high: int) -> bool:
            return bool(kernels.offer(scores, norms, first, *pools.arguments(), low, high))

        while any(self._spread(offer, len(scores))):
            for row in np.flatnonzero(pools.position < len(norms)).tolist():
                self._resolve(pools, row, queries[row])

    def _resolve(self, pools: _Pools, row: int, query: NDArray[np.float32]) -> None:
        """Replace the scores of one crowded pool by exact ones and keep the k best, in order of their ids."""
        ids = pools.ids[row, : pools.count[row]]
        exact = self._distances(ids, query)
        keep = np.sort(np.argsort(exact, kind="stable")[: pools.k])
        score = (exact[keep] - float(np.dot(query.astype(np.float64), query))).astype(np.float32)
        pools.ids[row, : pools.k] = ids[keep]
        pools.scores[row, : pools.k] = score
        pools.count[row] = pools.k
        pools.bound[row] = score.max() + pools.slack[row]

    def _distances(self, ids: NDArray[np.int64], query: NDArray[np.float32]) -> NDArray[np.float64]:
        out = np.empty(len(ids), np.float64)
        if self.resident:
            kernels.gathered_distances(self._keys, ids, query, out)
        else:
            kernels.gathered_distances(float32(self.store.keys[ids]), np.arange(len(ids)), query, out)
        return out

    def _rank(self, pools: _Pools, queries: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        distances = np.empty((len(queries), pools.k), np.float32)
        ids = np.empty((len(queries), pools.k), np.int64)

        def rank(low: int, high: int) -> None:
            for row in range(low, high):
                kept, _ = kernels.prune(pools.scores[row], pools.ids[row], pools.count[row], pools.k, pools.slack[row])
                found = pools.ids[row, :kept]
                kernels.best(self._distances(found, queries[row]), found, pools.k, distances[row], ids[row])

        self._spread(rank, len(queries))
        return distances, ids

    def _spread(self, work: Callable[[int, int], bool | None], rows: int) -> list[bool | None]:
        """Run `work(low, high)` over equal parts of the rows, one thread each."""
        if self._pool is None or rows == 1:
            return [work(0, rows)]
        edges = np.linspace(0, rows, min(self.threads, rows) + 1).astype(int)
        return list(self._pool.map(work, edges[:-1], edges[1:]))


class _Pools:
    """Candidates of n queries: scores and ids [n, capacity] in order of ids, of which row i uses count[i]."""

    def __init__(self, n: int, k: int, slack: NDArray[np.float32]) -> None:
        capacity = 4 * k + 4 * kernels.BLOCK
        self.k = k
        self.slack = slack
        self.scores = np.empty((n, capacity), np.float32)
        self.ids = np.empty((n, capacity), np.int64)
        self.count = np.zeros(n, np.int64)
        self.bound = np.full(n, np.inf, np.float32)
        self.position = np.zeros(n, np.int64)

    def rows(self, low: int, high: int) -> _Pools:
        """A view of some rows."""
        view = _Pools.__new__(_Pools)
        view.k = self.k
        for name in ("slack", "scores", "ids", "count", "bound", "position"):
            setattr(view, name, getattr(self, name)[low:high])
        return view

    def arguments(self) -> tuple[object, ...]:
        """In the order that `kernels.offer` takes them."""
        return self.k, self.slack, self.bound, self.scores, self.ids, self.count, self.position


def _ranges(total: int, step: int) -> Iterator[tuple[int, int]]:
    return ((start, min(start + step, total)) for start in range(0, total, step))


def _norms(keys: NDArray[np.float32]) -> NDArray[np.float32]:
    norms: NDArray[np.float32] = np.einsum("ij,ij->i", keys, keys, dtype=np.float32)
    return norms
