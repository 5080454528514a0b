"""Scores ||x||^2 - 2 x.q of all keys by matrix products, and a bound of their error.

A score ranks like the squared distance. Products run in bfloat16 if the processor multiplies it natively (four to five
times the float32 rate, half the memory), else in float32. Searches allow for the error bound, so the precision affects
how many candidates are recomputed, never the result. Resident keys are centred first: hidden states share a large mean,
which does not change distances but increases rounding errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from threading import Lock
from weakref import WeakValueDictionary

import numpy as np
import torch
from numpy.typing import NDArray

from harness.common.progress import Progress
from methods.nearest.vectors import Vectors

FLOAT32, BFLOAT16 = 2.0**-24, 2.0**-8  # unit roundoffs
READ = 1 << 16  # entries converted at once

_opened: WeakValueDictionary[tuple[object, ...], Scores] = WeakValueDictionary()
_opening = Lock()


def open_scores(vectors: Vectors, dtype: torch.dtype, memory_gb: float) -> Scores:
    """The scores of these vectors. Scores for the same file in one process, such as those of a method and its baseline,
    share the keys in memory."""
    if not vectors.file:
        return Scores(vectors, dtype, memory_gb)
    key = (*vectors.file, dtype, memory_gb)
    with _opening:
        if (scores := _opened.get(key)) is None:
            scores = _opened[key] = Scores(vectors, dtype, memory_gb)
        return scores


class Scores:
    """Keys ready for products with queries.

    `resident` holds them in memory, N (d itemsize + 4) bytes; otherwise each search reads them from disk.
    """

    def __init__(self, vectors: Vectors, dtype: torch.dtype, memory_gb: float) -> None:
        self.vectors = vectors
        self.dtype = dtype
        size = vectors.entries * (vectors.dimension * dtype.itemsize + 4)
        self.resident = size <= memory_gb * 1e9
        self.bytes = size if self.resident else 0
        self._keys: torch.Tensor | None = None
        self._loading = Lock()
        self._norms = np.empty(0, np.float32)
        self._mean = torch.zeros(vectors.dimension)
        self._largest = vectors.largest_norm  # of a (centred) key
        self._residue = self._largest * BFLOAT16 if dtype == torch.bfloat16 else 0.0  # largest ||x - rounded x||

    def load(self) -> None:
        """Load resident keys into memory, unless they are there."""
        if self.resident and self._keys is None:
            with self._loading:
                if self._keys is None:
                    self._load()

    def _load(self) -> None:
        n, d = self.vectors.entries, self.vectors.dimension
        mean = _read(self.vectors, slice(0, n, max(n // READ, 1))).mean(0)
        keys = torch.empty((n, d), dtype=self.dtype)
        norms = np.empty(n, np.float32)
        progress, residue = Progress(), 0.0
        for start in range(0, n, READ):
            part = _read(self.vectors, slice(start, start + READ)) - mean
            keys[start : start + READ] = part
            norms[start : start + READ] = part.square().sum(1).numpy()
            rounded = part - keys[start : start + READ].float()
            residue = max(residue, float(rounded.square().sum(1).max()) ** 0.5)
            progress.update("keys to memory", min(start + READ, n), n, "entries")
        self._mean, self._norms = mean, norms
        self._largest = float(norms.max()) ** 0.5 * (1 + d * FLOAT32)
        self._residue = residue * (1 + d * FLOAT32)
        self._keys = keys  # set last: then the rest is set for all threads

    def prepare(self, queries: NDArray[np.float32]) -> tuple[torch.Tensor, NDArray[np.float32]]:
        """-2 q [n, d] in the products' precision, and the error bound [n] of the scores.

        By Cauchy-Schwarz, with M and r the largest norm and rounding residue of a key, u the roundoffs (Higham 2002,
        section 3.1; sums of d products in float32, one rounding to bfloat16). The bound is the sum of the rounding of
        keys and query, 2 (r |q| + (M + r) |q - q^|), of the result, 2 u_bf (M + r) |q^|, and of the sums. In bfloat16
        the loop for a single query does not round its result.
        """
        centred = torch.tensor(queries) - self._mean
        rounded = centred.to(self.dtype)
        length = centred.double().norm(dim=1).numpy()
        residue = (centred.double() - rounded.double()).norm(dim=1).numpy()
        m, d = self._largest, self.vectors.dimension
        error = FLOAT32 * ((d + 8) * m * m + 4 * (d + 4) * m * length)
        if self.dtype == torch.bfloat16:
            result = BFLOAT16 * (length + residue) if len(queries) > 1 else 0.0
            error += 2 * (self._residue * length + (m + self._residue) * (residue + result))
        return -2 * rounded, (1.05 * error).astype(np.float32)

    def blocks(self, low: int, high: int, size: int) -> Iterator[tuple[int, torch.Tensor, NDArray[np.float32]]]:
        """(id of the first entry, keys [b, d], norms float32 [b]) of the entries low .. high - 1, `size` at a time."""
        for start in range(low, high, size):
            stop = min(start + size, high)
            if self._keys is not None:
                yield start, self._keys[start:stop], self._norms[start:stop]
            else:
                keys = _read(self.vectors, slice(start, stop))
                yield start, keys.to(self.dtype), keys.square().sum(1).numpy()


def _read(vectors: Vectors, which: slice) -> torch.Tensor:
    # torch converts half precision with vector instructions, numpy element by element
    return torch.from_numpy(np.array(vectors.keys[which])).float()
