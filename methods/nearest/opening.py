"""The index of `IndexOptions`: whether it has files, their key, and opening it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from methods.nearest.faiss_index import FaissIndex, version
from methods.nearest.index import EXACT, IndexOptions, NeighborIndex
from methods.nearest.vectors import Vectors

CHUNK = 1 << 24  # bytes read at once


def needs_build(options: IndexOptions) -> bool:
    """Whether the index has its own files. Exact indexes read the vectors' files."""
    return options.index not in EXACT


def index_key(vectors_key: Mapping[str, Any], options: IndexOptions) -> dict[str, Any]:
    """Everything that determines an index on disk. Raises `RequestError` when faiss is not installed."""
    return {"datastore": dict(vectors_key), **options.build_key(), "faiss": version()}


def open_index(
    vectors: Vectors, options: IndexOptions, folder: Path | None = None, *, device: str = "cpu", memory_gb: float = 8.0,
    direct: bool = False,
) -> NeighborIndex:  # fmt: skip
    """The index of these vectors, ready to search. folder: filled by `build_index`. memory_gb: most memory for the keys
    of exact search; larger keys are read from disk block by block. direct: see `FaissIndex`."""
    if options.index == "flat" and device.startswith("cuda"):
        from methods.nearest.tiled import TiledIndex

        return TiledIndex(vectors, device, memory_gb)
    if options.index == "flat":
        from methods.nearest.flat import FlatIndex

        return FlatIndex(vectors, memory_gb)
    return FaissIndex(vectors, options, folder, direct)


def read_through(folder: Path) -> None:
    """Read all files of a folder, so that they are in the page cache when they are mapped."""
    for path in folder.iterdir():
        with path.open("rb") as file:
            while file.read(CHUNK):
                pass
