"""The vectors that an index searches, in a file, with a bound of their lengths."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

ROWS = 4096  # vectors measured at once

_copies: WeakValueDictionary[tuple[int, ...], NDArray[np.float16]] = WeakValueDictionary()
_copying = Lock()


@dataclass(frozen=True, slots=True)
class Vectors:
    """N vectors, memory-mapped if they are in a file. The row of a vector is the id of its entry.

    folder: of the file. keys: float16 [N, d]. largest_norm: at least the largest ||key||; it bounds the rounding
    error of distances.
    """

    folder: Path
    keys: NDArray[np.float16]
    largest_norm: float

    @property
    def entries(self) -> int:
        """N."""
        return len(self.keys)

    @property
    def dimension(self) -> int:
        """d."""
        return int(self.keys.shape[1])


def open_vectors(file: Path) -> Vectors:
    """Memory-map a `.npy` file of vectors float16 [N, d]. It is read once, for the bound of their lengths."""
    keys = np.load(file, mmap_mode="r")
    return Vectors(file.parent, keys, longest(keys) * (1 + 1e-5))


def identity(vectors: Vectors) -> tuple[int, ...]:
    """What tells the vectors' file from others, such as one that replaced it under its name; empty without a file."""
    file = getattr(vectors.keys, "filename", None)
    if file is None:
        return ()
    status = Path(file).stat()
    return status.st_dev, status.st_ino, status.st_mtime_ns


def copied(vectors: Vectors) -> NDArray[np.float16]:
    """The keys [N, d] in memory. All who ask for those of one file in a process, such as methods that are timed
    together, share one copy. Vectors without a file are in memory already."""
    key = identity(vectors)
    if not key:
        return vectors.keys
    with _copying:
        if (found := _copies.get(key)) is None:
            found = _copies[key] = np.array(vectors.keys)
        return found


def longest(keys: NDArray[np.float16]) -> float:
    """The largest ||key||, up to float32 rounding."""
    parts = (keys[start : start + ROWS] for start in range(0, len(keys), ROWS))
    largest = max((float(np.square(part, dtype=np.float32).sum(1).max()) for part in parts), default=0.0)
    return math.sqrt(largest)
