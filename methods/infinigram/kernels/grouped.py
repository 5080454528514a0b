"""Many n-grams at once."""

from __future__ import annotations

import numpy as np
from numba import carray

from methods.infinigram.kernels.columns import (
    FIRSTS,
    NARROW,
    OUTSIDE,
    POINTERS,
    SIGN,
    STEP,
    SUFFIXES,
    TOKENS,
    VOCABULARY,
    WIDTH,
    at_address,
)
from methods.infinigram.kernels.compiling import compiled
from methods.infinigram.kernels.searching import find_in, pointer, sampled

GROUP = 64  # searches that run in lockstep
_ANY, _LEFT, _RIGHT = range(3)  # target of a search: any match, the first match, the first after the last match


@compiled
def count_many(shards, flat, offsets, totals):  # type: ignore[no-untyped-def]
    """Write the occurrences of the n-grams flat[offsets[q] : offsets[q + 1]] to totals int64 [Q]."""
    for first in range(0, len(totals), GROUP):
        part = slice(first, min(first + GROUP, len(totals)))
        own, edges = totals[part], offsets[first : part.stop + 1]
        own[:] = 0
        for query in range(len(own)):
            for token in flat[edges[query] : edges[query + 1]]:
                if token < 0 or token >= shards[0, VOCABULARY]:
                    own[query] = OUTSIDE
        for number in range(len(shards)):
            shard = shards[number]
            if shard[NARROW]:
                _count_group(carray(at_address(shard[TOKENS]), 1 << 62, np.uint16), shard, flat, edges, own)
            else:
                _count_group(carray(at_address(shard[TOKENS]), 1 << 62, np.uint32), shard, flat, edges, own)


@compiled
def _count_group(tokens, shard, flat, edges, totals):  # type: ignore[no-untyped-def]
    """Add the occurrences in one shard. The searches run in lockstep, so that their memory reads overlap, which take
    most of a search's time: over 25 million tokens, 7 steps per 5-gram with two distant reads each."""
    pointers, width, sign = carray(at_address(shard[POINTERS]), 1 << 62, np.uint8), shard[WIDTH], shard[SIGN]
    firsts, last_suffix = carray(at_address(shard[FIRSTS]), 1 << 62, np.int64), shard[SUFFIXES] - 1
    size = len(totals)
    low, high, start, rest, end, stage, going, position, seen = np.empty((9, size), np.int64)
    open_ = 0
    for query in range(size):
        ngram = flat[edges[query] : edges[query + 1]]
        if totals[query] == OUTSIDE:
            continue
        if len(ngram) < 2:
            begin, behind = find_in(shard, ngram)
            totals[query] += sign * (behind - begin)
            continue
        low[query], high[query] = firsts[ngram[0]], firsts[ngram[0] + 1]
        if low[query] == high[query]:
            continue
        first, after, whole = sampled(shard, low[query], high[query], ngram)
        low[query], end[query] = max(low[query], (first - 1) * STEP + 1), min(high[query], after * STEP)
        if whole and first < after:
            stage[query], high[query], rest[query] = _LEFT, first * STEP, (after - 1) * STEP + 1
        else:
            stage[query], high[query] = _ANY, end[query]
        going[open_] = query
        open_ += 1
    while open_:
        for at in range(open_):
            middle = (low[going[at]] + high[going[at]]) >> 1
            position[at] = pointer(pointers, width, min(middle, last_suffix))
        for at in range(open_):
            seen[at] = tokens[position[at] + 1]
        left = 0
        for at in range(open_):
            query = going[at]
            begin, behind, now = low[query], high[query], stage[query]
            if begin < behind:
                middle, place, own = (begin + behind) >> 1, edges[query] + 1, position[at] - edges[query]
                sign_ = seen[at] - flat[place]
                while sign_ == 0 and place + 1 < edges[query + 1]:  # no slice: it would take as long as the comparison
                    place += 1
                    sign_ = np.int64(tokens[own + place]) - flat[place]
                if now == _ANY and sign_ == 0:
                    now, behind, rest[query], end[query] = _LEFT, middle, middle + 1, behind
                elif sign_ < 0 or (now == _RIGHT and sign_ == 0):
                    begin = middle + 1
                else:
                    behind = middle
            if begin == behind and now == _LEFT:
                now, start[query], begin, behind = _RIGHT, begin, rest[query], end[query]
            low[query], high[query], stage[query] = begin, behind, now
            if begin < behind:
                going[left] = query
                left += 1
            elif now == _RIGHT:
                totals[query] += sign * (begin - start[query])
        open_ = left
