"""Compiled loops for candidates of several clusters: products with int8 centres, and the union of word lists.

Both are in one file because numba's cache is invalidated only by changes to the file of the outermost function.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

FAST = {"reassoc", "contract", "arcp", "nsz"}


@njit(nogil=True, cache=True, fastmath=FAST)
def _some(centres, scales, offsets, context, result, begin, end):  # type: ignore[no-untyped-def]
    for t in range(begin, end):
        total = np.float32(0)
        for j in range(len(context)):
            total += np.float32(centres[t, j]) * context[j]
        result[t] = total * scales[t] + offsets[t]


@njit(nogil=True, cache=True, fastmath=FAST, parallel=True)
def _in_threads(centres, scales, offsets, context, result, threads):  # type: ignore[no-untyped-def]
    for part in prange(threads):
        size = len(centres)
        _some(centres, scales, offsets, context, result, part * size // threads, (part + 1) * size // threads)


@njit(nogil=True, cache=True)
def products(centres, scales, offsets, context, threads):  # type: ignore[no-untyped-def]
    """centres int8 [r, d] @ context float32 [d] * scales [r] + offsets [r], float32 [r]."""
    result = np.empty(len(centres), np.float32)
    if threads > 1:
        _in_threads(centres, scales, offsets, context, result, threads)
    else:
        _some(centres, scales, offsets, context, result, 0, len(centres))
    return result


@njit(nogil=True, cache=True)
def join(starts, members, probed, ids, count, marks, turn):  # type: ignore[no-untyped-def]
    """Append to ids[:count] the words of the probed clusters that are not marked with `turn`, and mark them. Returns
    the new count. Words of cluster t: members[starts[t] : starts[t + 1]]. marks: int64 [L]."""
    for t in probed:
        for place in range(starts[t], starts[t + 1]):
            word = members[place]
            if marks[word] != turn:
                marks[word] = turn
                ids[count] = word
                count += 1
    return count
