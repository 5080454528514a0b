"""Named arrays on disk, and the hash of their content."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.common.files import arrays_digest, digest

FILE = "arrays.npz"
LINE = 64  # bytes of a cache line


def save(folder: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays into an artifact's folder."""
    np.savez(folder / FILE, **arrays)  # type: ignore[arg-type]  # numpy's stub takes every keyword for allow_pickle


def load(folder: Path) -> dict[str, NDArray[Any]]:
    """The arrays that `save` wrote, in memory."""
    with np.load(folder / FILE) as saved:
        return {name: saved[name] for name in saved.files}


def content(*arrays: NDArray[Any]) -> str:
    """Hex SHA-256 (20 characters) of arrays, shapes and types included; part of every artifact's key."""
    return digest([[str(array.dtype), array.shape, arrays_digest(array)] for array in arrays])


def aligned(rows: int, width: int) -> NDArray[np.float32]:
    """Zeros float32 [rows, width] that start on a cache line; so does every row when width is a multiple of 16."""
    size = rows * width * 4
    raw = np.zeros(size + LINE, np.uint8)
    first = -raw.ctypes.data % LINE
    return raw[first : first + size].view(np.float32).reshape(rows, width)


def in_int8(rows: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Rows float32 [n, d] as int8 [n, d] times a scale float32 [n] for each row, its largest number over 127."""
    scales = np.maximum(np.abs(rows).max(axis=1), np.finfo(np.float32).tiny) / np.float32(127)
    return np.rint(rows / scales[:, None]).astype(np.int8), scales
