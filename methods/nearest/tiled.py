"""Exact search on a GPU: tiled products and top-k, so that neither the keys nor the scores need to fit at once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from methods.nearest.index import NeighborIndex, finite
from methods.nearest.scores import FLOAT32
from methods.nearest.vectors import Vectors

TILE_BYTES = 1 << 29  # of one tile's scores, and of its keys as float32
QUERIES = 1024  # queries per tile
SAMPLE = 1 << 16  # entries for the mean
SPARE = 256  # candidates kept beyond k, so that rounding in the product rarely matters


class TiledIndex(NeighborIndex):
    """Exact neighbours by matrix products in float32 (torch's default precision; TF32 must stay off).

    Keys stay on the device as float16 if they fit in `memory_gb`; else each tile is copied from the file. They are
    centred before the product, whose rounding error has a bound (`methods.nearest.scores`). The distances of the best
    k + 256 are recomputed as sums of squared differences in float64 and sorted, ties by lowest id. If another entry
    could still be as near (more than 256 ties, cancellation), the distances of all entries to this query are computed
    in float64, which is slow but exact.
    """

    exact_ranking = True

    def __init__(self, vectors: Vectors, device: str, memory_gb: float = 8.0) -> None:
        self.vectors = vectors
        self.device = torch.device(device)
        size = 2 * vectors.entries * vectors.dimension
        self.bytes = size if size <= memory_gb * 1e9 else 0
        self._keys: torch.Tensor | None = None
        step = self._tile(1)
        if self.bytes:
            self._keys = torch.empty((vectors.entries, vectors.dimension), dtype=torch.float16, device=self.device)
            for start in range(0, vectors.entries, step):
                self._keys[start : start + step] = self._read(start, start + step)
        some = np.array(vectors.keys[:: max(vectors.entries // SAMPLE, 1)])
        self._mean = torch.from_numpy(some).to(self.device).float().mean(0)
        self._largest = vectors.largest_norm + float(self._mean.norm())  # bounds the length of a centred key

    def _read(self, start: int, stop: int) -> torch.Tensor:
        return torch.from_numpy(np.array(self.vectors.keys[start:stop])).to(self.device)

    def _tile(self, queries: int) -> int:
        """Entries per tile."""
        return max(TILE_BYTES // (4 * max(queries, self.vectors.dimension)), 1)

    def _tiles(self, queries: int) -> Iterator[tuple[int, torch.Tensor]]:
        tile = self._tile(queries)
        for start in range(0, self.vectors.entries, tile):
            stop = min(start + tile, self.vectors.entries)
            yield start, self._keys[start:stop] if self._keys is not None else self._read(start, stop)

    @torch.no_grad()
    def search(self, queries: NDArray[np.float32], k: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        queries = finite(queries)
        k = min(k, self.vectors.entries)
        distances = np.empty((len(queries), k), np.float32)
        ids = np.empty((len(queries), k), np.int64)
        for start in range(0, len(queries), QUERIES):
            part = torch.from_numpy(queries[start : start + QUERIES]).to(self.device)
            candidates, beyond = self._candidates(part, min(k + SPARE, self.vectors.entries))
            near, found = self._rank(part, candidates, k)
            doubtful = (near[:, -1] >= beyond).nonzero()[:, 0]
            self.bytes_read += (1 + bool(len(doubtful))) * 2 * self.vectors.entries * self.vectors.dimension
            if len(doubtful):
                near[doubtful], found[doubtful] = self._scan(part[doubtful], k)
            distances[start : start + len(part)] = near.float().cpu().numpy()
            ids[start : start + len(part)] = found.cpu().numpy()
        return distances, ids

    def _candidates(self, queries: torch.Tensor, wanted: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Ids int64 [n, wanted] of the entries with the best scores, and a lower bound float64 [n] of the squared
        distances of all other entries: the worst of these scores minus the error bound of two scores."""
        centred = queries - self._mean
        scores = torch.empty((len(queries), 0), device=self.device)
        ids = torch.empty((len(queries), 0), dtype=torch.int64, device=self.device)
        for start, tile in self._tiles(len(queries)):
            keys = tile.float() - self._mean
            score = torch.addmm(keys.square().sum(1)[None], centred, keys.T, alpha=-2)
            near, where = score.topk(min(wanted, len(keys)), dim=1, largest=False)
            scores, ids = torch.cat([scores, near], 1), torch.cat([ids, where + start], 1)
            if scores.shape[1] > wanted:
                scores, where = scores.topk(wanted, dim=1, largest=False)
                ids = ids.gather(1, where)
        if wanted == self.vectors.entries:
            return ids, torch.full((len(queries),), torch.inf, dtype=torch.float64, device=self.device)
        length, m, d = centred.double().norm(dim=1), self._largest, self.vectors.dimension
        # as in `scores`; centring also rounds every coordinate, by at most u times the centred length
        error = FLOAT32 * ((d + 8) * m * m + 4 * (d + 4) * m * length + 8 * m * (m + length) + 4 * length.square())
        return ids, scores.amax(1).double() + length.square() - 1.05 * error

    def _rank(self, queries: torch.Tensor, ids: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The k nearest of the candidates: squared distances float64 [n, k], ids int64 [n, k]."""
        ids = ids.sort(1).values
        near = torch.empty((len(queries), k), dtype=torch.float64, device=self.device)
        found = torch.empty((len(queries), k), dtype=torch.int64, device=self.device)
        for row, query in enumerate(queries.double()):
            if self._keys is not None:
                keys = self._keys[ids[row]]
            else:
                keys = torch.from_numpy(self.vectors.keys[ids[row].cpu().numpy()]).to(self.device)
            exact = (keys.double() - query).square().sum(1)
            order = exact.sort(stable=True)
            near[row], found[row] = order.values[:k], ids[row, order.indices[:k]]
        return near, found

    def _scan(self, queries: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The k nearest of all entries, in the form of `_rank`."""
        near = torch.empty((len(queries), 0), dtype=torch.float64, device=self.device)
        found = torch.empty((len(queries), 0), dtype=torch.int64, device=self.device)
        for start, tile in self._tiles(len(queries)):
            keys = tile.double()
            exact = torch.stack([(keys - query).square().sum(1) for query in queries.double()])
            ids = torch.arange(start, start + len(keys), device=self.device).expand(len(queries), -1)
            near, found = torch.cat([near, exact], 1), torch.cat([found, ids], 1)
            near, order = near.sort(dim=1, stable=True)  # equal distances are in order of ids
            near, found = near[:, :k], found.gather(1, order[:, :k])
        return near, found
