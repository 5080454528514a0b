"""The vectors that an index searches, in a file, with a bound of their lengths."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
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
    error of distances. file: what tells the mapped file from others, such as one that took its name since; empty for
    vectors in memory or a part of a file.
    """

    folder: Path
    keys: NDArray[np.float16]
    largest_norm: float
    file: tuple[int, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "file", _identity(self.keys))

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


def _identity(keys: NDArray[np.float16]) -> tuple[int, ...]:
    if not isinstance(keys, np.memmap) or keys.filename is None:
        return ()
    status = Path(keys.filename).stat()
    whole = keys.offset + keys.nbytes == status.st_size
    return (status.st_dev, status.st_ino, status.st_mtime_ns) if whole else ()


def copied(vectors: Vectors) -> NDArray[np.float16]:
    """The keys [N, d] in memory. All who ask for those of one file in a process, such as methods that are timed
    together, share one copy."""
    if not isinstance(vectors.keys, np.memmap):
        return vectors.keys
    with _copying:
        if (found := _copies.get(vectors.file)) is None:
            found = np.array(vectors.keys)
            if vectors.file:
                _copies[vectors.file] = found
        return found


def longest(keys: NDArray[np.float16]) -> float:
    """The largest ||key||, up to float32 rounding."""
    parts = (keys[start : start + ROWS] for start in range(0, len(keys), ROWS))
    largest = max((float(np.square(part, dtype=np.float32).sum(1).max()) for part in parts), default=0.0)
    return math.sqrt(largest)
