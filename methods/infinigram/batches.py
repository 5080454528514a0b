"""Many n-grams counted at once: searches in step, whose reads from memory overlap."""

from __future__ import annotations

import numpy as np
from numba import carray, njit

from methods.infinigram.kernels import (
    COMPILED,
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
    compare,
    find_in,
    pointer,
    sampled,
)  # fmt: skip

GROUP = 32  # searches that go in step
_ANY, _LEFT, _RIGHT = range(3)  # what a search looks for: a match, the first one, behind the last one


@njit(**COMPILED)
def count_many(shards, flat, offsets, totals):  # type: ignore[no-untyped-def]
    """Occurrences, into totals int64 [Q], of the n-grams flat[offsets[q] : offsets[q + 1]]."""
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


@njit(**COMPILED)
def _count_group(tokens, shard, flat, edges, totals):  # type: ignore[no-untyped-def]
    """Add the occurrences in one shard. The searches go in step, so that their reads from memory, which take most of a
    search's time, overlap: twice as fast as one after the other over 20 million tokens."""
    pointers, width, sign = carray(at_address(shard[POINTERS]), 1 << 62, np.uint8), shard[WIDTH], shard[SIGN]
    firsts = carray(at_address(shard[FIRSTS]), 1 << 62, np.int64)
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
            query = going[at]
            position[query] = pointer(pointers, width, min((low[query] + high[query]) >> 1, shard[SUFFIXES] - 1))
        for at in range(open_):
            seen[going[at]] = tokens[position[going[at]] + 1]
        left = 0
        for at in range(open_):
            query = going[at]
            if low[query] < high[query]:
                ngram = flat[edges[query] : edges[query + 1]]
                middle = (low[query] + high[query]) >> 1
                sign_ = seen[query] - ngram[1]
                if sign_ == 0:
                    sign_ = compare(tokens, position[query], ngram, 2)
                if stage[query] == _ANY and sign_ == 0:
                    stage[query], high[query], rest[query], end[query] = _LEFT, middle, middle + 1, high[query]
                elif sign_ < 0 or (stage[query] == _RIGHT and sign_ == 0):
                    low[query] = middle + 1
                else:
                    high[query] = middle
            if low[query] == high[query] and stage[query] == _LEFT:
                stage[query], start[query], low[query], high[query] = _RIGHT, low[query], rest[query], end[query]
            if low[query] < high[query]:
                going[left] = query
                left += 1
            elif stage[query] == _RIGHT:
                totals[query] += sign * (low[query] - start[query])
        open_ = left
