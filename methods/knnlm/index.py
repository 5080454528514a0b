"""Nearest-neighbour search over a datastore's keys: one interface, several backends.

| backend | answer | where |
| --- | --- | --- |
| `flat` | exact | CPU: blocked product and compiled selection (`flat`); CUDA: tiled product and top-k (`cuda`) |
| `faiss-flat` | exact up to float32 rounding | faiss, its BLAS threshold raised |
| `ivf-pq`, `ivf-sq8` | approximate: `nlist` lists, `nprobe` searched, product or 8-bit scalar codes | faiss |
| `hnsw` | approximate: graph of degree `links`, beam of `ef` | faiss |
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from harness.errors import RequestError
from methods.knnlm.datastore import Datastore
from methods.knnlm.ranges import within

if TYPE_CHECKING:
    from numpy.typing import NDArray

Backend = Literal["flat", "faiss-flat", "ivf-pq", "ivf-sq8", "hnsw"]
LARGEST = 2**31 - 2  # that faiss takes, of which one more is the seed of its k-means
EXACT: tuple[Backend, ...] = ("flat", "faiss-flat")


@dataclass(frozen=True, slots=True)
class IndexOptions:
    """What to build and how to search it; 0 means: chosen from the number of entries and the width of the keys.
    Raises `RequestError` for values out of range."""

    backend: Backend = "flat"
    nlist: int = 0  # inverted lists; 0: about 4 sqrt(N)
    nprobe: int = 32  # lists searched
    code_size: int = 0  # bytes per entry of ivf-pq; 0: d / 4 rounded to a divisor of d
    links: int = 16  # hnsw: links per entry; with a single one faiss divides by log 1 and crashes
    ef: int = 1024  # hnsw: beam of the search
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("nlist", 0), ("nprobe", 1), ("code_size", 0), ("links", 2), ("ef", 1), ("seed", 0)):
            within(name, getattr(self, name), least, LARGEST)

    def build_key(self) -> dict[str, Any]:
        """The options that change what is built, not how it is searched."""
        used = {"ivf-pq": ("nlist", "code_size", "seed"), "ivf-sq8": ("nlist", "seed"), "hnsw": ("links", "seed")}
        return {"backend": self.backend, **{name: getattr(self, name) for name in used.get(self.backend, ())}}

    def search_key(self) -> dict[str, Any]:
        """Everything that can change an answer."""
        used = {"ivf-pq": ("nprobe",), "ivf-sq8": ("nprobe",), "hnsw": ("ef",)}
        return self.build_key() | {name: asdict(self)[name] for name in used.get(self.backend, ())}


class NeighborIndex(ABC):
    """Finds the entries nearest to a query in squared L2 distance."""

    bytes: int  # memory that searching needs beside the datastore's own files

    def load(self) -> None:  # noqa: B027 - most are ready once opened
        """Bring into memory what searching reads; the first search does it otherwise."""

    @abstractmethod
    def search(self, queries: NDArray[np.float32], k: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Neighbours of queries [n, d]: squared L2 distances float32 [n, k'], ascending, and entry ids int64 [n, k'],
        where k' = min(k, N). Exact backends break ties by lowest id and answer a query alike in any batch. An
        approximate backend that reaches fewer entries ends the row with distance inf and id -1. Raises `RequestError`
        where a query is not finite: nothing is near to it."""


def finite(queries: NDArray[np.floating]) -> NDArray[np.float32]:
    """Queries [n, d] as a contiguous float32 array. Raises `RequestError` that names the first row with NaN or inf."""
    rows = np.ascontiguousarray(queries, np.float32)
    sound = np.isfinite(rows)
    if not sound.all():
        row = int(sound.all(1).argmin())
        raise RequestError(
            f"row {row} of {len(rows)} queries is not finite (NaN or infinite); look at the model's weights, or load "
            "it with dtype=float32"
        )
    return rows


def build_index(folder: Path, store: Datastore, options: IndexOptions) -> None:
    """Build the files of an approximate index in `folder`, with memory bounded by its codes and one chunk of keys."""
    from methods.knnlm.faiss_index import build

    build(folder, store, options)


def needs_build(options: IndexOptions) -> bool:
    """Whether the backend has files of its own; exact ones read the datastore."""
    return options.backend not in EXACT


def index_key(datastore_key: Mapping[str, Any], options: IndexOptions) -> dict[str, Any]:
    """What determines an index on disk. Raises `RequestError` when faiss is not installed."""
    from methods.knnlm.faiss_index import version

    return {"datastore": dict(datastore_key), **options.build_key(), "faiss": version()}


def open_index(
    store: Datastore, options: IndexOptions, folder: Path | None = None, *, device: str = "cpu", memory_gb: float = 8.0
) -> NeighborIndex:
    """The index of a datastore, ready to search. `folder` is what `build_index` filled; `memory_gb` bounds the float32
    keys that exact search holds (it reads them from disk block by block otherwise)."""
    if options.backend == "flat" and device.startswith("cuda"):
        from methods.knnlm.tiled import TiledIndex

        return TiledIndex(store, device, memory_gb)
    if options.backend == "flat":
        from methods.knnlm.flat import FlatIndex

        return FlatIndex(store, memory_gb)
    from methods.knnlm.faiss_index import FaissIndex

    return FaissIndex(store, options, folder)
