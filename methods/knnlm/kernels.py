"""Compiled inner loops of exact search: selection under a bound, and distances whose rounding ignores the batch.

All kernels release the GIL and run on the caller's thread: exact search spreads query rows over a pool of its own, so
that no numba threading layer (unsafe under concurrent callers, and known to reset the thread counts of torch and
faiss) is ever started.
"""

from __future__ import annotations

import numpy as np
from numba import njit

BLOCK = 64  # scores whose minimum is compared with the bound at once; a multiple of every SIMD width


@njit(nogil=True, cache=True, fastmath=True)  # fastmath lets the minimum vectorise; NaN never reaches it
def _minimum(scores, norms, start, stop):  # type: ignore[no-untyped-def]
    low = np.float32(np.inf)
    for j in range(start, stop):
        low = min(low, scores[j] + norms[j])
    return low


@njit(nogil=True, cache=True)
def prune(scores, ids, count, k, slack):  # type: ignore[no-untyped-def]
    """Keep, in order, the entries within `slack` of the k-th smallest of `scores[:count]`; returns (kept, bound)."""
    if count <= k:
        return count, np.float32(np.inf)
    bound = np.float32(np.partition(scores[:count], k - 1)[k - 1] + slack)
    kept = 0
    for j in range(count):
        if scores[j] <= bound:
            scores[kept] = scores[j]
            ids[kept] = ids[j]
            kept += 1
    return kept, bound


@njit(nogil=True, cache=True)
def offer(  # type: ignore[no-untyped-def]
    products, norms, first, k, slack, bound, pool_scores, pool_ids, count, position, low, high
):
    """Offer one block of entries to the candidate pools of query rows [low, high).

    products float32 [n, b] are -2 x.q; norms float32 [b] are ||x||^2; `first` is the id of the block's first entry.
    A score (norm + product) enters its row's pool when it does not exceed bound[row], the k-th best so far plus
    slack[row]. A full pool is pruned; a row whose pool stays nearly full after that stops at position[row] < b for
    the caller to resolve. Returns True when a row stopped.
    """
    size = products.shape[1]
    capacity = pool_scores.shape[1]
    stopped = False
    for row in range(low, high):
        limit, c, start = bound[row], count[row], position[row]
        scores = products[row]
        while start < size:
            stop = min(start + BLOCK, size)
            if c + (stop - start) > capacity:
                c, limit = prune(pool_scores[row], pool_ids[row], c, k, slack[row])
                if 4 * c > 3 * capacity or c + (stop - start) > capacity:
                    stopped = True
                    break
            if _minimum(scores, norms, start, stop) <= limit:
                for j in range(start, stop):
                    score = scores[j] + norms[j]
                    if score <= limit:
                        pool_scores[row, c] = score
                        pool_ids[row, c] = first + j
                        c += 1
            start = stop
        bound[row], count[row], position[row] = limit, c, start
    return stopped


@njit(nogil=True, cache=True, fastmath=True)
def gathered_distances(keys, ids, query, out):  # type: ignore[no-untyped-def]
    """out float64 [m] = ||keys[ids[i]] - query||^2, keys float32 [N, d]. One fixed order of additions for every row,
    so the answer does not depend on what else is in the batch."""
    for i in range(ids.shape[0]):
        row = keys[ids[i]]
        total = 0.0
        for j in range(row.shape[0]):
            difference = np.float64(row[j]) - np.float64(query[j])
            total += difference * difference
        out[i] = total


@njit(nogil=True, cache=True)
def best(distances, ids, k, out_distances, out_ids):  # type: ignore[no-untyped-def]
    """Write the k smallest of distances [m] (ids ascending, m >= k) to the outputs, ascending, ties by lowest id."""
    order = np.argsort(distances, kind="mergesort")
    for j in range(k):
        out_distances[j] = distances[order[j]]
        out_ids[j] = ids[order[j]]
