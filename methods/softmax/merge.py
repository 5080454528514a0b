"""The compiled query of Greedy-MIPS: a heap over the sorted lists of all dimensions."""

from __future__ import annotations

from methods.softmax.kernels import compiled


@compiled
def greedy_candidates(lists, values, query, budget, keys, state, seen, turn, out_ids):  # type: ignore[no-untyped-def]
    """The first `budget` distinct words by descending w_ij h_j (Yu et al., 2017, algorithms 2 and 3).

    lists int32 [D, L] words of each dimension by descending weight, values float32 [D, L] those weights; query [D].
    Scratch: keys float32 [D], state int32 [2, D] (dimension, place in its list), seen int64 [L] holding the `turn` in
    which a word was last taken. Writes out_ids int32 and returns the count (less than budget when the query is zero).
    """
    dimensions, words = lists.shape
    owner, place = state[0], state[1]
    size = 0
    for j in range(dimensions):
        if query[j] != 0:  # NaN is kept; it is noticed in the logits
            owner[size] = j
            place[j] = 0 if query[j] > 0 else words - 1
            keys[size] = query[j] * values[j, place[j]]
            size += 1
    for i in range(size // 2 - 1, -1, -1):
        _sift(keys, owner, i, size)
    count = 0
    while size > 0 and count < budget:
        j = owner[0]
        step = 1 if query[j] > 0 else -1
        at = place[j]
        word = lists[j, at]
        if seen[word] != turn:
            seen[word] = turn
            out_ids[count] = word
            count += 1
        at += step
        while 0 <= at < words and seen[lists[j, at]] == turn:  # skip words that other dimensions already gave
            at += step
        if 0 <= at < words:
            place[j] = at
            keys[0] = query[j] * values[j, at]
        else:
            size -= 1
            keys[0], owner[0] = keys[size], owner[size]
        _sift(keys, owner, 0, size)
    return count


@compiled
def _sift(keys, owner, start, size):  # type: ignore[no-untyped-def]
    """Restore the max-heap keys[:size] below `start`; owner moves along."""
    key, who = keys[start], owner[start]
    i = start
    child = 2 * i + 1
    while child < size:
        if child + 1 < size and keys[child + 1] > keys[child]:
            child += 1
        if not keys[child] > key:
            break
        keys[i], owner[i] = keys[child], owner[child]
        i = child
        child = 2 * i + 1
    keys[i], owner[i] = key, who
