"""The compiled union of word lists."""

from __future__ import annotations

from numba import njit


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
