"""Exact distances to stored keys, for re-ranking the results of an approximate index and for entries pointed to."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from methods.nearest import kernels
from methods.nearest.index import finite
from methods.nearest.vectors import Vectors

F = TypeVar("F", bound=np.floating)


def exact_distances(vectors: Vectors, queries: NDArray[np.float32], ids: NDArray[np.int64]) -> NDArray[np.float32]:
    """Squared L2 distances [n, k] of queries [n, d] to the stored keys of entries ids [n, k]; `inf` for id -1. A pair's
    distance does not depend on the rest of the batch. Raises `RequestError` if a query is not finite."""
    return unrounded_distances(vectors, queries, ids).astype(np.float32)


def unrounded_distances(vectors: Vectors, queries: NDArray[np.float32], ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """The same in float64. Exact search ranks by it, because float32 would make nearly equal distances equal."""
    out = np.empty(ids.shape, np.float64)
    halves = vectors.keys.view(np.uint16)
    for row, query in enumerate(finite(queries)):
        kernels.distances(halves, np.maximum(ids[row], 0), query, out[row])
    out[ids < 0] = np.inf
    return out


def ranked(distances: NDArray[F], ids: NDArray[np.int64]) -> tuple[NDArray[F], NDArray[np.int64]]:
    """Rows sorted by distance, ties by lowest id."""
    order = np.lexsort((ids, distances), axis=-1)
    return np.take_along_axis(distances, order, -1), np.take_along_axis(ids, order, -1)
