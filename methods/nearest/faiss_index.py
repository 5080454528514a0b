"""Neighbour search by faiss (Johnson et al., 2019): flat, inverted lists with product or scalar codes, HNSW.

Profile: k-means dominates the build. With 64 points per centroid and 10 iterations, instead of faiss's 256 and 25,
IVF-PQ over 200k x 256 keys is built eight times faster, at the same recall (0.39 at 1024 neighbours, nprobe 32 of 1024
lists).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.common.errors import RequestError
from harness.common.progress import Progress
from methods.nearest.index import IndexOptions, NeighborIndex, finite
from methods.nearest.vectors import Vectors

FILE = "index.faiss"
CHUNK = 1 << 15  # entries converted and added at once
SAMPLE_PER_LIST = 64  # training entries per centroid
ITERATIONS = 10  # of k-means: more change recall less than another seed does


def opened_faiss() -> Any:
    """The package, set to multiply matrices with its own kernel. Raises `RequestError` if it is not installed."""
    try:
        import faiss
    except ImportError as error:
        raise RequestError("faiss is not installed: pip install faiss-cpu, or use index=flat") from error
    # Below this many queries faiss uses its own kernel. Its wheel's BLAS is several times slower (faiss #2449).
    faiss.cvar.distance_compute_blas_threshold = 1 << 20
    return faiss


def version() -> str:
    """The installed version. Raises `RequestError` when there is none."""
    return str(opened_faiss().__version__)


def build_index(folder: Path, vectors: Vectors, options: IndexOptions) -> None:
    """Build the file of an approximate index in `folder`: train on a seeded sample, add chunk by chunk. Memory is
    bounded by the index's codes and one chunk of vectors.

    Raises `RequestError` when `nlist` or `code_size` does not fit the vectors.
    """
    faiss = opened_faiss()
    progress = Progress()
    index = _empty(faiss, vectors, options)
    if not index.is_trained:
        lists = index.nlist
        rng = np.random.default_rng(options.seed)
        size = min(vectors.entries, max(SAMPLE_PER_LIST * lists, 1 << 14))
        sample = np.sort(rng.choice(vectors.entries, size, replace=False))
        progress.update("index", 0, vectors.entries, "entries", f"training {lists} lists on {size:,} entries")
        for clustering in [index.cp, *([index.pq.cp] if options.index == "ivf-pq" else [])]:
            clustering.niter = ITERATIONS
            clustering.seed = options.seed + 1
            clustering.max_points_per_centroid = SAMPLE_PER_LIST
        index.train(_rows(vectors, sample))
    for start in range(0, vectors.entries, CHUNK):
        stop = min(start + CHUNK, vectors.entries)
        index.add(_rows(vectors, slice(start, stop)))
        progress.update("index", stop, vectors.entries, "entries")
    faiss.write_index(index, str(folder / FILE))


def _rows(vectors: Vectors, which: NDArray[np.int64] | slice) -> NDArray[np.float32]:
    return np.ascontiguousarray(vectors.keys[which], np.float32)


def _empty(faiss: Any, vectors: Vectors, options: IndexOptions) -> Any:
    d, n = vectors.dimension, vectors.entries
    if options.index == "hnsw":
        index = faiss.IndexHNSWFlat(d, options.links)
        index.hnsw.efConstruction = 80
        index.hnsw.rng = faiss.RandomGenerator(options.seed)  # for the levels; the rest depends on the order of threads
        return index
    lists = options.nlist or _lists(n)
    if lists > n:
        raise RequestError(f"nlist={lists} exceeds the {n} entries; give at most {n}, or 0 for a default")
    coarse = faiss.IndexFlatL2(d)
    if options.index == "ivf-sq8":
        return faiss.IndexIVFScalarQuantizer(coarse, d, lists, faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_L2)
    code = options.code_size or max(c for c in range(1, max(d // 4, 1) + 1) if d % c == 0)
    if d % code:
        raise RequestError(f"code_size={code} does not divide the keys' width d={d}; give a divisor of it")
    bits = min(8, max(int(np.log2(n)), 1))  # fewer than 256 entries cannot train 256 centroids
    return faiss.IndexIVFPQ(coarse, d, lists, code, bits)


def _lists(entries: int) -> int:
    """About 4 sqrt(N), a power of two, with at least 39 entries per list (faiss's lower limit for k-means)."""
    wanted = min(4 * entries**0.5, entries / 39)
    return 1 << max(int(np.log2(max(wanted, 1))), 0)


class FaissIndex(NeighborIndex):
    """A faiss index opened for search."""

    def __init__(self, vectors: Vectors, options: IndexOptions, folder: Path | None, direct: bool = False) -> None:
        """direct: for `distances`, which needs 8 bytes an entry where there are inverted lists."""
        faiss = opened_faiss()
        self.vectors = vectors
        self._direct = direct and options.index.startswith("ivf")
        # bytes read for each scanned entry, and for each query whatever is scanned
        self._statistics: Any
        self.code: int
        self._whole: int
        if options.index == "faiss-flat":
            self.index = faiss.IndexFlatL2(vectors.dimension)
            self.bytes = 4 * vectors.entries * vectors.dimension
            self._statistics, self.code, self._whole = None, 0, self.bytes
            return
        if folder is None:
            raise ValueError(f"the index {options.index} needs the folder of its index")
        path = folder / FILE
        try:
            self.index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
        except (RuntimeError, OSError) as error:
            raise RequestError(
                f"{path} is not a readable faiss index ({_last_line(error)}); "
                f"delete the folder {folder} and run again to build it again"
            ) from error
        if self.index.d != vectors.dimension or self.index.ntotal != vectors.entries:
            raise RequestError(
                f"{path} holds {self.index.ntotal} entries of width {self.index.d}, the vectors in {vectors.folder} "
                f"{vectors.entries} of width {vectors.dimension}; delete the folder {folder} and run again"
            )
        self.bytes = path.stat().st_size + 8 * self._direct * vectors.entries
        if options.index == "hnsw":
            self.index.hnsw.efSearch = options.ef
            self._statistics, self.code, self._whole = faiss.cvar.hnsw_stats, 4 * vectors.dimension, 0
        else:
            self.index.nprobe = min(options.nprobe, self.index.nlist)
            centres = 4 * self.index.nlist * vectors.dimension
            self._statistics, self.code, self._whole = faiss.cvar.indexIVF_stats, self.index.code_size, centres

    def load(self) -> None:
        for start in range(self.index.ntotal, self.vectors.entries, CHUNK):  # only `faiss-flat` has entries left to add
            self.index.add(_rows(self.vectors, slice(start, start + CHUNK)))
        if self._direct:  # where in the lists each entry is; kept once made
            self.index.make_direct_map()

    def search(self, queries: NDArray[np.float32], k: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        queries = finite(queries)
        self.load()
        k = min(k, self.vectors.entries)
        if len(queries) == 0:
            return np.empty((0, k), np.float32), np.empty((0, k), np.int64)
        before = self._scanned()
        distances, ids = self.index.search(queries, k)
        self.bytes_read += (self._scanned() - before) * self.code + len(queries) * self._whole
        distances[ids < 0] = np.inf
        return np.maximum(distances, 0), ids  # expansion and codes can dip below zero

    def distances(self, query: NDArray[np.float32], ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Squared L2 distances float32 [n] of a query [d] to what the index holds of entries ids [n]: those that a
        search of an approximate index gives. For an index opened with `direct`."""
        if len(ids) == 0:
            return np.empty(0, np.float32)
        self.load()
        offsets = self.index.reconstruct_batch(ids) - query
        squared: NDArray[np.float32] = np.einsum("nd,nd->n", offsets, offsets)
        return squared

    def _scanned(self) -> int:
        """Entries whose distances faiss has computed in this process, by its own count."""
        return int(self._statistics.ndis) if self._statistics is not None else 0


def _last_line(error: Exception) -> str:
    return str(error).strip().splitlines()[-1][:120] if str(error).strip() else type(error).__name__
