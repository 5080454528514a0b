"""Documents of suffixes, and the places in documents at which n-grams begin."""

from __future__ import annotations

import numpy as np
from numba import carray

from methods.infinigram.kernels.columns import DOCUMENTS, HELD, NARROW, POINTERS, TOKENS, WIDTH, at_address
from methods.infinigram.kernels.compiling import compiled
from methods.infinigram.kernels.searching import compare, pointer


@compiled
def positions(shard, ranks):  # type: ignore[no-untyped-def]
    """Positions int64 [r] of suffixes, which are given by their ranks int64 [r]."""
    pointers = carray(at_address(shard[POINTERS]), 1 << 62, np.uint8)
    found = np.empty(len(ranks), np.int64)
    for number in range(len(ranks)):
        found[number] = pointer(pointers, shard[WIDTH], ranks[number])
    return found


@compiled
def located(shards, rows, ranges, ranks):  # type: ignore[no-untyped-def]
    """(row of the shard, document, position) int64 [r, 3] of suffixes, which are numbered through some ranges int64
    [k, 2] of suffixes in the shards of the rows int64 [k]."""
    found = np.empty((len(ranks), 3), np.int64)
    for number in range(len(ranks)):
        rank, part = ranks[number], 0
        while rank >= ranges[part, 1] - ranges[part, 0]:
            rank -= ranges[part, 1] - ranges[part, 0]
            part += 1
        shard = shards[rows[part]]
        position = pointer(carray(at_address(shard[POINTERS]), 1 << 62, np.uint8), shard[WIDTH], ranges[part, 0] + rank)
        offsets = carray(at_address(shard[DOCUMENTS]), 1 << 60, np.int64)
        low, high = np.int64(0), shard[HELD]
        while low + 1 < high:
            middle = (low + high) >> 1
            if offsets[middle] <= position:
                low = middle
            else:
                high = middle
        found[number, 0], found[number, 1], found[number, 2] = rows[part], low, position
    return found


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
