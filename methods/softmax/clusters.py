"""Clusters of context vectors: assignment (L2S, Eq. 2) and spherical k-means, which L2S starts from."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from harness.common.progress import Progress

BLOCK = 8192  # contexts of one product


def assign(contexts: NDArray[np.float32], clusters: NDArray[np.float32]) -> NDArray[np.int64]:
    """z(h) = argmax_t v_t . h (Eq. 2), int64 [n], for contexts [n, d] of any length and clusters [r, d]."""
    assigned = np.empty(len(contexts), np.int64)
    for start in range(0, len(contexts), BLOCK):
        assigned[start : start + BLOCK] = (contexts[start : start + BLOCK] @ clusters.T).argmax(axis=1)
    return assigned


def unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows [n, d] scaled to length 1; zero rows stay zero."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(norms > 0, norms, 1), np.float32)


def spherical_kmeans(
    contexts: NDArray[np.float32], clusters: int, iterations: int, sample: int, rng: np.random.Generator
) -> NDArray[np.float32]:
    """Unit centroids float32 [clusters, d] that maximise the sum of cosines (Dhillon and Modha, 2001).

    Runs on at most `sample` of the contexts [n, d]; starts from distinct contexts; stops early when no assignment
    changes. A centroid without contexts is set to the context that is farthest from its own.
    """
    chosen = np.sort(rng.permutation(len(contexts))[: max(sample, clusters)])
    points = unit(contexts[chosen])
    centroids = points[rng.permutation(len(points))[:clusters]].copy()
    progress = Progress()
    previous = np.full(len(points), -1)
    for iteration in range(iterations):
        sums = np.zeros_like(centroids)
        assigned = np.empty(len(points), np.int64)
        closeness = np.empty(len(points), np.float32)
        for start in range(0, len(points), BLOCK):
            block = points[start : start + BLOCK]
            cosines = block @ centroids.T
            best = cosines.argmax(axis=1)
            assigned[start : start + BLOCK] = best
            closeness[start : start + BLOCK] = cosines[np.arange(len(block)), best]
            order = np.argsort(best, kind="stable")
            found, starts = np.unique(best[order], return_index=True)
            sums[found] += np.add.reduceat(block[order], starts, axis=0)
        empty = np.flatnonzero(np.bincount(assigned, minlength=clusters) == 0)
        sums[empty] = points[np.argsort(closeness, kind="stable")[: len(empty)]]
        centroids = unit(sums)
        progress.update("spherical k-means", iteration + 1, iterations, "iterations")
        if np.array_equal(assigned, previous):
            break
        previous = assigned
    return centroids
