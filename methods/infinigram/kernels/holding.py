"""Documents of suffixes, and the places in documents at which n-grams begin."""

from __future__ import annotations

import numpy as np
from numba import carray

from methods.infinigram.kernels.columns import DOCUMENTS, HELD, NARROW, POINTERS, TOKENS, WIDTH, at_address
from methods.infinigram.kernels.compiling import compiled
from methods.infinigram.kernels.searching import compare, find_in, pointer


@compiled
def positions(shard, ranks):  # type: ignore[no-untyped-def]
    """Positions int64 [r] of suffixes, which are given by their ranks int64 [r]."""
    pointers = carray(at_address(shard[POINTERS]), 1 << 62, np.uint8)
    found = np.empty(len(ranks), np.int64)
    for number in range(len(ranks)):
        found[number] = pointer(pointers, shard[WIDTH], ranks[number])
    return found


@compiled
def _document(shard, position):  # type: ignore[no-untyped-def]
    """The document at a position."""
    offsets, low, high = carray(at_address(shard[DOCUMENTS]), 1 << 60, np.int64), np.int64(0), shard[HELD]
    while low + 1 < high:
        middle = (low + high) >> 1
        if offsets[middle] <= position:
            low = middle
        else:
            high = middle
    return low


@compiled
def draw(shards, flat, offsets, limit, most, seed):  # type: ignore[no-untyped-def]
    """Up to `limit` documents that hold an n-gram flat[offsets[q] : offsets[q + 1]], as (row of the shard, document,
    position of a match) int64 [k, 3], and whether there are no others or enough were found. Matches are drawn by their
    ranks (splitmix64), only these are decoded, and at most `most`."""
    ngrams = len(offsets) - 1
    ranges, total = np.empty((len(shards) * ngrams, 2), np.int64), np.int64(0)
    for part in range(len(ranges)):
        number = part % ngrams
        low, high = find_in(shards[part // ngrams], flat[offsets[number] : offsets[number + 1]])
        ranges[part, 0], ranges[part, 1] = low, high
        total += high - low
    order = np.arange(total if total <= most else 0)
    found, size, state = np.empty((limit, 3), np.int64), 0, np.uint64(seed)
    known = {np.int64(-1)}
    for turn in range(min(total, most)):
        state += np.uint64(0x9E3779B97F4A7C15)
        drawn = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        drawn = (drawn ^ (drawn >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        drawn ^= drawn >> np.uint64(31)
        if len(order):  # a permutation
            other = turn + np.int64(drawn % np.uint64(total - turn))
            order[turn], order[other] = order[other], order[turn]
            rank = order[turn]
        else:
            rank = np.int64(drawn % np.uint64(total))
        part = 0
        while rank >= ranges[part, 1] - ranges[part, 0]:
            rank -= ranges[part, 1] - ranges[part, 0]
            part += 1
        row = part // ngrams
        shard = shards[row]
        position = pointer(carray(at_address(shard[POINTERS]), 1 << 62, np.uint8), shard[WIDTH], ranges[part, 0] + rank)
        document = _document(shard, position)
        if (row << 32) + document not in known:
            known.add((row << 32) + document)
            found[size, 0], found[size, 1], found[size, 2] = row, document, position
            size += 1
            if size == limit:
                return found, True
    return found[:size], total <= most


@compiled
def _begins(tokens, begin, end, flat, offsets, most):  # type: ignore[no-untyped-def]
    found, size = np.empty(8, np.int64), 0
    for place in range(begin, end):
        for number in range(len(offsets) - 1):
            ngram = flat[offsets[number] : offsets[number + 1]]
            if place + len(ngram) <= end and compare(tokens, place, ngram, 0) == 0:
                if size == len(found):
                    found = np.concatenate((found, np.empty_like(found)))
                found[size] = place
                size += 1
                break
        if size == most:
            break
    return found[:size]


@compiled
def matches(shard, begin, end, flat, offsets, most):  # type: ignore[no-untyped-def]
    """The first `most` positions, ascending, at which an n-gram flat[offsets[q] : offsets[q + 1]] lies within tokens
    begin .. end - 1 of a shard."""
    if shard[NARROW]:
        return _begins(carray(at_address(shard[TOKENS]), 1 << 62, np.uint16), begin, end, flat, offsets, most)
    return _begins(carray(at_address(shard[TOKENS]), 1 << 62, np.uint32), begin, end, flat, offsets, most)


@compiled
def hold(shard, documents, flat, offsets):  # type: ignore[no-untyped-def]
    """Whether each of some documents int64 [k] holds one of the n-grams: bool [k]."""
    edges, found = carray(at_address(shard[DOCUMENTS]), 1 << 60, np.int64), np.empty(len(documents), np.bool_)
    for number in range(len(documents)):
        begin, end = edges[documents[number]], edges[documents[number] + 1] - 1
        found[number] = len(matches(shard, begin, end, flat, offsets, 1)) > 0
    return found
