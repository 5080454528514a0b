"""Named arrays on disk, and the hash of their content."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

FILE = "arrays.npz"


def save(folder: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays into an artifact's folder."""
    np.savez(folder / FILE, **arrays)  # type: ignore[arg-type]  # numpy's stub takes every keyword for allow_pickle


def load(folder: Path) -> dict[str, NDArray[Any]]:
    """The arrays that `save` wrote, in memory."""
    with np.load(folder / FILE) as saved:
        return {name: saved[name] for name in saved.files}


def content(*arrays: NDArray[Any]) -> str:
    """Hex SHA-256 (20 characters) of arrays, shapes and types included; part of every artifact's key."""
    state = hashlib.sha256()
    for array in arrays:
        state.update(f"{array.dtype}{array.shape}".encode())
        state.update(np.ascontiguousarray(array).data)
    return state.hexdigest()[:20]
