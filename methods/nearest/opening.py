"""The index that `IndexOptions` name: whether it has files, by which key they are known, and opening it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from methods.nearest.faiss_index import FaissIndex, version
from methods.nearest.index import EXACT, IndexOptions, NeighborIndex
from methods.nearest.vectors import Vectors

CHUNK = 1 << 24  # bytes read at once


def needs_build(options: IndexOptions) -> bool:
    """Whether the index has files of its own; exact ones read the vectors'."""
    return options.index not in EXACT


def index_key(vectors_key: Mapping[str, Any], options: IndexOptions) -> dict[str, Any]:
    """What determines an index on disk. Raises `RequestError` when faiss is not installed."""
    return {"datastore": dict(vectors_key), **options.build_key(), "faiss": version()}


def open_index(
    vectors: Vectors, options: IndexOptions, folder: Path | None = None, *, device: str = "cpu", memory_gb: float = 8.0
) -> NeighborIndex:
    """The index of these vectors, ready to search. `folder` is what `build_index` filled; `memory_gb` bounds the keys
    that exact search holds in memory (it reads them from disk block by block otherwise)."""
    if options.index == "flat" and device.startswith("cuda"):
        from methods.nearest.tiled import TiledIndex

        return TiledIndex(vectors, device, memory_gb)
    if options.index == "flat":
        from methods.nearest.flat import FlatIndex

        return FlatIndex(vectors, memory_gb)
    return FaissIndex(vectors, options, folder)


def read_through(folder: Path) -> None:
    """Bring the files of a folder, which are to be mapped, into memory."""
    for path in folder.iterdir():
        with path.open("rb") as file:
            while file.read(CHUNK):
                pass
