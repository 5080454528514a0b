"""The interface of indexes, and their options.

| index | answer | where |
| --- | --- | --- |
| `flat` | exact | CPU: blocked product and compiled selection (`flat`); CUDA: tiled product and top-k (`tiled`) |
| `faiss-flat` | exact up to float32 rounding | faiss, its BLAS threshold raised |
| `ivf-pq`, `ivf-sq8` | approximate: `nlist` lists, `nprobe` searched, product or 8-bit scalar codes | faiss |
| `hnsw` | approximate: graph of degree `links`, beam of `ef` | faiss |
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from harness.common.errors import RequestError

Backend = Literal["flat", "faiss-flat", "ivf-pq", "ivf-sq8", "hnsw"]
EXACT: tuple[Backend, ...] = ("flat", "faiss-flat")
LARGEST = 2**31 - 2  # largest int for faiss; its k-means uses seed + 1
Links = Annotated[int, Field(ge=2, le=LARGEST)]  # with 1 faiss divides by log 1 and crashes
Beam = Annotated[int, Field(ge=1, le=LARGEST)]
Seed = Annotated[int, Field(ge=0, le=LARGEST)]
_BUILT_BY = {"ivf-pq": ("nlist", "code_size", "seed"), "ivf-sq8": ("nlist", "seed"), "hnsw": ("links", "seed")}
_SEARCHED_BY = {"ivf-pq": ("nprobe",), "ivf-sq8": ("nprobe",), "hnsw": ("ef",)}


@dataclass(kw_only=True)
class IndexOptions:
    """The parameters of an index and its search, inherited by methods that search vectors.

    index: see the table of `methods.nearest.index`. nlist: inverted lists; 0: about 4 sqrt(N). nprobe: lists searched.
    code_size: bytes per entry of `ivf-pq`; 0: d / 4, rounded to a divisor of d. links, ef: of `hnsw`, links per entry
    and beam of the search. seed: of k-means and of the graph's levels.
    """

    index: Backend = "flat"
    nlist: Annotated[int, Field(ge=0, le=LARGEST)] = 0
    nprobe: Annotated[int, Field(ge=1, le=LARGEST)] = 32
    code_size: Annotated[int, Field(ge=0, le=LARGEST)] = 0
    links: Links = 16
    ef: Beam = 1024
    seed: Seed = 0

    def build_key(self) -> dict[str, Any]:
        """The options that the build depends on."""
        return {"backend": self.index, **{name: getattr(self, name) for name in _BUILT_BY.get(self.index, ())}}

    def search_key(self) -> dict[str, Any]:
        """The options that an answer depends on."""
        used = {name: getattr(self, name) for name in _SEARCHED_BY.get(self.index, ())}
        return self.build_key() | used


class NeighborIndex(ABC):
    """Finds the entries nearest to a query in squared L2 distance."""

    bytes: int  # memory of a search, without the files of the vectors
    bytes_read = 0  # by all searches: keys, codes and centres (`methods.bandwidth`)
    exact_ranking = False  # whether answers are ranked by unrounded distances to the stored keys, ties by lowest id

    def load(self) -> None:  # noqa: B027 - most are ready once opened
        """Load what a search reads into memory. Otherwise the first search does so."""

    def single_threaded(self) -> NeighborIndex:
        """The same index, searched on one thread. By default itself: faiss uses the calling thread's setting."""
        return self

    @abstractmethod
    def search(self, queries: NDArray[np.float32], k: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Neighbours of queries [n, d]: squared L2 distances float32 [n, k'], ascending, and entry ids int64 [n, k'],
        k' = min(k, N). In an exact index ties go to the lowest id, and a query's answer does not depend on its batch.
        If an approximate index reaches fewer entries, the row ends with distance inf and id -1. Raises `RequestError`
        if a query is not finite."""


def finite(queries: NDArray[np.floating]) -> NDArray[np.float32]:
    """Queries [n, d] as a contiguous float32 array. Raises `RequestError` with the first row that has NaN or inf."""
    rows = np.ascontiguousarray(queries, np.float32)
    sound = np.isfinite(rows)
    if not sound.all():
        row = int(sound.all(1).argmin())
        raise RequestError(
            f"row {row} of {len(rows)} queries is not finite (NaN or infinite); look at the model's weights, or load "
            "it with dtype=float32"
        )
    return rows
