"""What follows the suffixes of one shard that agree in their first tokens."""

from __future__ import annotations

import numpy as np
from numba import carray

from methods.infinigram.kernels.columns import FIRSTS, NARROW, POINTERS, SAMPLES, STEP, TOKENS, WIDTH, at_address
from methods.infinigram.kernels.compiling import compiled
from methods.infinigram.kernels.searching import pointer


@compiled
def _next_is(tokens, pointers, width, low, high, offset, token):  # type: ignore[no-untyped-def]
    """Range of suffixes low .. high - 1 with `token` at `offset`. All of them agree in the tokens before it."""
    begin, end = low, high
    while begin < end:
        middle = (begin + end) >> 1
        if np.int64(tokens[pointer(pointers, width, middle) + offset]) < token:
            begin = middle + 1
        else:
            end = middle
    first, end = begin, high
    while begin < end:
        middle = (begin + end) >> 1
        if np.int64(tokens[pointer(pointers, width, middle) + offset]) <= token:
            begin = middle + 1
        else:
            end = middle
    return first, begin


@compiled
def _before_ends(tokens, pointers, width, low, high, offset, separator):  # type: ignore[no-untyped-def]
    """The first of suffixes low .. high - 1 whose document ends at `offset`. They agree in the tokens before it."""
    if low < high and np.int64(tokens[pointer(pointers, width, high - 1) + offset]) != separator:
        return high  # most contexts never end a document
    return _next_is(tokens, pointers, width, low, high, offset, separator)[0]


@compiled
def going_on(shard, low, high, offset):  # type: ignore[no-untyped-def]
    """Number of suffixes low .. high - 1 whose document has a token at `offset`. They agree in the tokens before it."""
    if offset == 0 or low == high:
        return high - low
    pointers = carray(at_address(shard[POINTERS]), 1 << 62, np.uint8)
    if shard[NARROW]:
        tokens = carray(at_address(shard[TOKENS]), 1 << 62, np.uint16)
        return _before_ends(tokens, pointers, shard[WIDTH], low, high, offset, 0xFFFF) - low
    wide = carray(at_address(shard[TOKENS]), 1 << 62, np.uint32)
    return _before_ends(wide, pointers, shard[WIDTH], low, high, offset, 0xFFFFFFFF) - low


@compiled
def followed_in(shard, low, high, offset, token):  # type: ignore[no-untyped-def]
    """Range of suffixes low .. high - 1 with `token` at `offset`. They agree in the tokens before it."""
    if offset == 0:
        firsts = carray(at_address(shard[FIRSTS]), 1 << 62, np.int64)
        return firsts[token], firsts[token + 1]
    pointers = carray(at_address(shard[POINTERS]), 1 << 62, np.uint8)
    if shard[NARROW]:
        tokens = carray(at_address(shard[TOKENS]), 1 << 62, np.uint16)
        return _next_is(tokens, pointers, shard[WIDTH], low, high, offset, token)
    wide = carray(at_address(shard[TOKENS]), 1 << 62, np.uint32)
    return _next_is(wide, pointers, shard[WIDTH], low, high, offset, token)


@compiled
def token_at(shard, number, offset):  # type: ignore[no-untyped-def]
    """Token `offset` of suffix `number`."""
    pointers = carray(at_address(shard[POINTERS]), 1 << 62, np.uint8)
    position = pointer(pointers, shard[WIDTH], number) + offset
    if shard[NARROW]:
        return np.int64(carray(at_address(shard[TOKENS]), 1 << 62, np.uint16)[position])
    return np.int64(carray(at_address(shard[TOKENS]), 1 << 62, np.uint32)[position])


@compiled
def following(shard, low, high, offset):  # type: ignore[no-untyped-def]
    """Distinct tokens int64 [m] at `offset` of suffixes low .. high - 1 of one shard, ascending, and their counts int64
    [m]. The end of each token's range is found by doubling, then bisection: over samples if these contain the token at
    `offset`, then over suffixes. So the cost grows with the number of distinct tokens."""
    tokens, counts, found = np.empty(16, np.int64), np.empty(16, np.int64), 0
    samples = carray(at_address(shard[SAMPLES]), 1 << 60, np.uint64)
    bits = 16 if shard[NARROW] else 32
    shift, mask = np.uint64(max(64 - bits * (offset + 1), 0)), (np.uint64(1) << np.uint64(bits)) - np.uint64(1)
    while low < high:
        token = token_at(shard, low, offset)
        step, inside, outside = 1, low, high
        if (offset + 1) * bits <= 64:
            same, other = low // STEP, -(-high // STEP)
            while same + step < other and np.int64(samples[same + step] >> shift & mask) == token:
                same, step = same + step, 2 * step
            other = min(other, same + step)
            while same + 1 < other:
                middle = (same + other) >> 1
                if np.int64(samples[middle] >> shift & mask) == token:
                    same = middle
                else:
                    other = middle
            step, inside, outside = 1, max(low, same * STEP), min(high, other * STEP)
        last = outside
        while inside + step < last:
            if token_at(shard, inside + step, offset) == token:
                inside += step
                step *= 2
            else:
                outside = inside + step
                break
        while inside + 1 < outside:
            middle = (inside + outside) >> 1
            if token_at(shard, middle, offset) == token:
                inside = middle
            else:
                outside = middle
        if found == len(tokens):
            tokens = np.concatenate((tokens, np.empty_like(tokens)))
            counts = np.concatenate((counts, np.empty_like(counts)))
        tokens[found], counts[found] = token, outside - low
        found += 1
        low = outside
    return tokens[:found], counts[:found]
