"""Compiled inner loops: products of one context with rows, selection of the k best, log-sum-exp.

Kernels that call each other are in one file, because numba's cache notices only changes of the file that holds the
outermost function. They run on the caller's thread and release the GIL. Fast-math without `nnan`: sums vectorise, NaNs
still propagate, so that a NaN in a context is noticed.
"""

from __future__ import annotations

import numpy as np
from numba import njit

FAST = {"reassoc", "contract", "arcp", "nsz"}
BLOCK = 64  # logits compared with the k-th best at once; a multiple of every SIMD width
PIECE = 1024  # low-rank logits accumulated at once: 4 KB
LOG2E = np.float32(1.4426950408889634)


compiled = njit(nogil=True, cache=True, fastmath=FAST)


@njit(nogil=True, fastmath=FAST, inline="always")
def _exp(x):  # type: ignore[no-untyped-def]
    """exp for float32 x <= 0, relative error < 3e-7; unlike the library's, it vectorises.

    2^t = 2^n * 2^f with n = round(t), |f| <= 1/2; 2^f by its Taylor polynomial, 2^n by its bits.
    """
    t = max(x * LOG2E, np.float32(-126.0))
    n = np.floor(t + np.float32(0.5))
    f = (t - n) * np.float32(0.6931471805599453)
    p = np.float32(1 / 720)
    p = p * f + np.float32(1 / 120)
    p = p * f + np.float32(1 / 24)
    p = p * f + np.float32(1 / 6)
    p = p * f + np.float32(0.5)
    p = p * f + np.float32(1.0)
    p = p * f + np.float32(1.0)
    return p * np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)


@njit(nogil=True, fastmath=FAST)
def _log_sum_exp(logits, count, best):  # type: ignore[no-untyped-def]
    """Natural log of sum(exp(logits[:count])), `best` being their maximum."""
    total = np.float32(0.0)
    for i in range(count):
        total += _exp(logits[i] - best)
    return np.float32(best + np.log(total))


@njit(nogil=True, fastmath=FAST)
def _select(logits, count, out_places, out_logits):  # type: ignore[no-untyped-def]
    """The k = len(out_places) best of logits[:count], best first, ties by lowest place. True when k were found.

    Insertion into a sorted list of k, only for blocks with a logit above the k-th best. For k << count almost no block
    has one. Counting values above a bound vectorises; searching for a maximum does not. NaN and -inf are never
    selected.
    """
    k = len(out_places)
    filled = 0
    bound = np.float32(-np.inf)
    for start in range(0, count, BLOCK):
        block = logits[start : min(start + BLOCK, count)]
        above = 0
        for i in range(len(block)):
            above += block[i] > bound
        if above == 0:
            continue
        for i in range(len(block)):
            logit = block[i]
            if not logit > bound:
                continue
            if filled < k:
                place = filled
                filled += 1
            else:
                place = k - 1
            while place > 0 and out_logits[place - 1] < logit:
                out_logits[place] = out_logits[place - 1]
                out_places[place] = out_places[place - 1]
                place -= 1
            out_logits[place] = logit
            out_places[place] = start + i
            if filled == k:
                bound = out_logits[k - 1]
    return filled == k


@compiled
def select(logits, out_ids, out_logits):  # type: ignore[no-untyped-def]
    """Best k of all logits float32 [L] into ids int64 [k] and logits float32 [k]; returns the log-sum-exp over all L.

    NaN when a logit is NaN or fewer than k are finite.
    """
    if not _select(logits, len(logits), out_ids, out_logits):
        return np.float32(np.nan)
    return _log_sum_exp(logits, len(logits), out_logits[0])


@compiled
def log_softmax_at(logits, place):  # type: ignore[no-untyped-def]
    """Natural-log probability of the logit at `place` under the softmax of all; NaN when they are not finite."""
    places, best = np.empty(1, np.int64), np.empty(1, np.float32)
    if not _select(logits, len(logits), places, best) or best[0] == np.inf:
        return np.float32(np.nan)
    return np.float32(logits[place] - _log_sum_exp(logits, len(logits), best[0]))


@compiled
def select_rows(logits, out_ids):  # type: ignore[no-untyped-def]
    """Best k ids of every row of logits float32 [n, L] into out_ids int32 [n, k]; False when a row has fewer."""
    k = out_ids.shape[1]
    places = np.empty(k, np.int64)
    best = np.empty(k, np.float32)
    for row in range(len(logits)):
        if not _select(logits[row], logits.shape[1], places, best):
            return False
        for j in range(k):
            out_ids[row, j] = places[j]
    return True


@njit(nogil=True, fastmath=FAST)
def _score(weight, bias, context, ids, count, out):  # type: ignore[no-untyped-def]
    """out[i] = weight[ids[i]] . context + bias[ids[i]] for i < count; four rows at once hide the gather's latency."""
    dimension = len(context)
    whole = count - count % 4
    for i in range(0, whole, 4):
        a, b, c, d = ids[i], ids[i + 1], ids[i + 2], ids[i + 3]
        u = v = w = x = np.float32(0.0)
        for j in range(dimension):
            h = context[j]
            u += weight[a, j] * h
            v += weight[b, j] * h
            w += weight[c, j] * h
            x += weight[d, j] * h
        out[i], out[i + 1], out[i + 2], out[i + 3] = u + bias[a], v + bias[b], w + bias[c], x + bias[d]
    for i in range(whole, count):
        a = ids[i]
        u = np.float32(0.0)
        for j in range(dimension):
            u += weight[a, j] * context[j]
        out[i] = u + bias[a]


@compiled
def score_candidates(weight, bias, context, ids, count, scratch, out_ids, out_logits):  # type: ignore[no-untyped-def]
    """Exact logits of ids[:count], the best k of them, and the log-sum-exp over them (NaN when there are fewer than k).

    ids: int32 with distinct entries; scratch: float32 of at least `count`; out_ids int64 [k], out_logits float32 [k].
    """
    _score(weight, bias, context, ids, count, scratch)
    if not _select(scratch, count, out_ids, out_logits):
        return np.float32(np.nan)
    for j in range(len(out_ids)):
        out_ids[j] = ids[out_ids[j]]
    return _log_sum_exp(scratch, count, out_logits[0])


@njit(nogil=True, fastmath=FAST)
def _nearest(clusters, context, quantised):  # type: ignore[no-untyped-def]
    """argmax_t of clusters[t] . context (L2S, Eq. 2) for int8 clusters; `quantised` int16 [d] is scratch.

    The context is scaled to length 2^15 - 1 and rounded towards zero, so no sum overflows int32 (by Cauchy-Schwarz up
    to d = 266,000). Integer sums do not depend on their order, so a context has the same cluster on every machine. A
    context without direction (zero, NaN) gets cluster 0. Ties: the lowest cluster.
    """
    dimension = len(context)
    square = np.float32(0.0)
    for j in range(dimension):
        square += context[j] * context[j]
    if not 0 < square < np.inf:
        return 0
    factor = np.float32(32767.0) / np.sqrt(square)
    for j in range(dimension):
        quantised[j] = np.int16(context[j] * factor)
    best = 0
    high = np.int32(-(2**31))
    for t in range(len(clusters)):
        total = np.int32(0)
        for j in range(dimension):
            total = np.int32(total + np.int32(np.int32(clusters[t, j]) * np.int32(quantised[j])))
        if total > high:
            high = total
            best = t
    return best


@compiled
def assign_quantised(clusters, contexts, out):  # type: ignore[no-untyped-def]
    """Cluster int64 [n] of every context float32 [n, d], exactly as `screened_topk` chooses it."""
    quantised = np.empty(contexts.shape[1], np.int16)
    for i in range(len(contexts)):
        out[i] = _nearest(clusters, contexts[i], quantised)


@njit(nogil=True, fastmath=FAST)
def _score_rows(rows, places, context, out):  # type: ignore[no-untyped-def]
    """out[i] = rows[places[i]] . context, four rows at once: they share each load of the context and hide latency."""
    count, width = len(places), len(context)
    whole = count - count % 4
    for i in range(0, whole, 4):
        a, b, c, d = rows[places[i]], rows[places[i + 1]], rows[places[i + 2]], rows[places[i + 3]]
        u = v = w = x = np.float32(0.0)
        for j in range(width):
            h = context[j]
            u += a[j] * h
            v += b[j] * h
            w += c[j] * h
            x += d[j] * h
        out[i], out[i + 1], out[i + 2], out[i + 3] = u, v, w, x
    for i in range(whole, count):
        a = rows[places[i]]
        u = np.float32(0.0)
        for j in range(width):
            u += a[j] * context[j]
        out[i] = u


@compiled
def screened_topk(clusters, rows, index, scratch, context, out_ids, out_logits):  # type: ignore[no-untyped-def]
    """One fused L2S step: nearest cluster, exact logits of its candidates, the best k of them.

    clusters int8 [r, d]; rows float32 [m, p]: weights, bias and padding of all candidate words; index int32, see
    `screening.pack`; scratch float32 [2 p + largest set], whose first p elements are [context, 1, 0, ..., 0]. There are
    few arguments, because unpacking one costs as much as scoring two words. Writes out_ids int64 [k] and out_logits
    float32 [k]. Returns the log-sum-exp over the candidate set, NaN when it has fewer than k finite logits.
    """
    (number, dimension), (distinct, width) = clusters.shape, rows.shape
    padded, logits = scratch[:width], scratch[2 * width :]
    z = _nearest(clusters, context, scratch[width : 2 * width].view(np.int16))
    for j in range(dimension):
        padded[j] = context[j]
    places = index[index[z] : index[z + 1]]
    _score_rows(rows, places, padded, logits)
    if not _select(logits, len(places), out_ids, out_logits):
        return np.float32(np.nan)
    words = index[number + 1 : number + 1 + distinct]
    for j in range(len(out_ids)):
        out_ids[j] = words[places[out_ids[j]]]
    return _log_sum_exp(logits, len(places), out_logits[0])


@compiled
def screened_topk_many(  # type: ignore[no-untyped-def]
    clusters, rows, index, scratch, contexts, out_ids, out_logits, out_normalizers
):
    """`screened_topk` for contexts float32 [n, d]: out_ids int64 [n, k], out_logits [n, k], out_normalizers [n]."""
    for i in range(len(contexts)):
        out_normalizers[i] = screened_topk(clusters, rows, index, scratch, contexts[i], out_ids[i], out_logits[i])


@njit(nogil=True, fastmath=FAST)
def _low_rank(right, left, bias, context, out):  # type: ignore[no-untyped-def]
    """out [L] = left^T (right . context) + bias for right [q, d], left [q, L]. A piece of `out` at a time stays in the
    L1 cache while directions are added to it, four at once."""
    rank, words = left.shape
    reduced = np.empty(rank, np.float32)
    for j in range(rank):
        total = np.float32(0.0)
        for i in range(len(context)):
            total += right[j, i] * context[i]
        reduced[j] = total
    whole = rank - rank % 4
    for start in range(0, words, PIECE):
        stop = min(start + PIECE, words)
        piece = out[start:stop]
        piece[:] = bias[start:stop]
        for j in range(0, whole, 4):
            r, s, t, u = reduced[j], reduced[j + 1], reduced[j + 2], reduced[j + 3]
            a, b, c, d = left[j, start:stop], left[j + 1, start:stop], left[j + 2, start:stop], left[j + 3, start:stop]
            for i in range(stop - start):
                piece[i] += r * a[i] + s * b[i] + t * c[i] + u * d[i]
        for j in range(whole, rank):
            r, a = reduced[j], left[j, start:stop]
            for i in range(stop - start):
                piece[i] += r * a[i]


@compiled
def refined_log_prob(weight, bias, context, ids, count, scratch, logits, target):  # type: ignore[no-untyped-def]
    """Natural-log probability of `target` when ids[:count] get exact logits and all others keep `logits` [L]."""
    _score(weight, bias, context, ids, count, scratch)
    for i in range(count):
        logits[ids[i]] = scratch[i]
    return log_softmax_at(logits, target)


@compiled
def completed_log_prob(  # type: ignore[no-untyped-def]
    weight, bias, context, ids, count, scratch, right, left, logits, target
):
    """As `refined_log_prob` with the low-rank logits left^T (right . context) + bias outside ids[:count]."""
    _low_rank(right, left, bias, context, logits)
    return refined_log_prob(weight, bias, context, ids, count, scratch, logits, target)


@compiled
def screened_log_prob(  # type: ignore[no-untyped-def]
    clusters, rows, index, scratch, bias, right, left, logits, context, target
):
    """`screened_topk`'s candidates exactly, all other words by `_low_rank`: natural-log probability of one word.

    NaN for a context that is not finite or whose cluster has no candidates."""
    (number, dimension), (distinct, width) = clusters.shape, rows.shape
    padded, exact = scratch[:width], scratch[2 * width :]
    z = _nearest(clusters, context, scratch[width : 2 * width].view(np.int16))
    places = index[index[z] : index[z + 1]]
    if len(places) == 0:
        return np.float32(np.nan)
    for j in range(dimension):
        padded[j] = context[j]
    _score_rows(rows, places, padded, exact)
    _low_rank(right, left, bias, context, logits)
    words = index[number + 1 : number + 1 + distinct]
    for i in range(len(places)):
        logits[words[places[i]]] = exact[i]
    return log_softmax_at(logits, target)


@compiled
def fill_candidates(ids, count, least, frequent):  # type: ignore[no-untyped-def]
    """Append words of `frequent` that are not in ids[:count] until there are `least`. Returns the new count."""
    found = count
    for i in range(len(frequent)):
        if count >= least:
            break
        new = True
        for j in range(found):
            new = new and ids[j] != frequent[i]
        if new:
            ids[count] = frequent[i]
            count += 1
    return count


@compiled
def at_least(values, bound, ties, out_ids):  # type: ignore[no-untyped-def]
    """Write the ids of the values above the bound, and of the first `ties` that equal it, to out_ids int32. Returns
    their number."""
    count = 0
    for start in range(0, len(values), BLOCK):
        block = values[start : min(start + BLOCK, len(values))]
        above = 0
        for i in range(len(block)):
            above += block[i] >= bound
        if above == 0:
            continue
        for i in range(len(block)):
            if block[i] > bound or (block[i] == bound and ties > 0):
                ties -= block[i] == bound
                out_ids[count] = start + i
                count += 1
    return count


@compiled
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
