"""Exact search on a GPU: tiled products and top-k, so that neither the keys nor the scores need to fit at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from methods.knnlm.index import NeighborIndex

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from methods.knnlm.datastore import Datastore

SCORES = 1 << 27  # scores held at once: 512 MB of float32
QUERIES = 1024  # queries per tile
SPARE = 64  # candidates kept beyond k, so that rounding in the product cannot cost a neighbour


class TiledIndex(NeighborIndex):
    """Exact neighbours by matrix products in float32.

    Keys stay on the device as float16 when they fit in `memory_gb`, else each tile is copied from the datastore. The
    best k + 64 by product are measured again as sums of squared differences in float64 and sorted, ties by lowest id;
    where more than 64 entries tie with the k-th, which of them are returned is up to the device's top-k.
    """

    def __init__(self, store: Datastore, device: str, memory_gb: float = 8.0) -> None:
        self.store = store
        self.device = torch.device(device)
        size = 2 * store.entries * store.dimension
        self.bytes = size if size <= memory_gb * 1e9 else 0
        self._keys: torch.Tensor | None = None
        if self.bytes:
            self._keys = torch.empty((store.entries, store.dimension), dtype=torch.float16, device=self.device)
            for start in range(0, store.entries, 1 << 18):
                self._keys[start : start + (1 << 18)] = self._read(start, start + (1 << 18))

    def _read(self, start: int, stop: int) -> torch.Tensor:
        return torch.from_numpy(np.array(self.store.keys[start:stop])).to(self.device)

    @torch.no_grad()
    def search(self, queries: NDArray[np.float32], k: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        k = min(k, self.store.entries)
        distances = np.empty((len(queries), k), np.float32)
        ids = np.empty((len(queries), k), np.int64)
        for start in range(0, len(queries), QUERIES):
            part = torch.from_numpy(np.ascontiguousarray(queries[start : start + QUERIES], np.float32)).to(self.device)
            near, found = self._rank(part, self._candidates(part, min(k + SPARE, self.store.entries)), k)
            distances[start : start + len(part)] = near.cpu().numpy()
            ids[start : start + len(part)] = found.cpu().numpy()
        return distances, ids

    def _candidates(self, queries: torch.Tensor, wanted: int) -> torch.Tensor:
        """Ids int64 [n, wanted] of the entries with the best scores."""
        scores = torch.empty((len(queries), 0), device=self.device)
        ids = torch.empty((len(queries), 0), dtype=torch.int64, device=self.device)
        tile = max(SCORES // len(queries), wanted)
        for start in range(0, self.store.entries, tile):
            stop = min(start + tile, self.store.entries)
            keys = (self._keys[start:stop] if self._keys is not None else self._read(start, stop)).float()
            score = torch.addmm(keys.square().sum(1)[None], queries, keys.T, alpha=-2)
            near, where = score.topk(min(wanted, stop - start), dim=1, largest=False)
            scores, ids = torch.cat([scores, near], 1), torch.cat([ids, where + start], 1)
            if scores.shape[1] > wanted:
                scores, where = scores.topk(wanted, dim=1, largest=False)
                ids = ids.gather(1, where)
        return ids

    def _rank(self, queries: torch.Tensor, ids: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        ids = ids.sort(1).values
        near = torch.empty((len(queries), k), device=self.device)
        found = torch.empty((len(queries), k), dtype=torch.int64, device=self.device)
        for row, query in enumerate(queries.double()):
            if self._keys is not None:
                keys = self._keys[ids[row]]
            else:
                keys = torch.from_numpy(self.store.keys[ids[row].cpu().numpy()]).to(self.device)
            exact = (keys.double() - query).square().sum(1)
            order = exact.sort(stable=True)
            near[row], found[row] = order.values[:k].float(), ids[row, order.indices[:k]]
        return near, found
