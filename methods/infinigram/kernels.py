"""Compiled searches in the suffix array of one shard.

An engine's shards come as one table, int64 [S, 9], whose columns are numbered below: addresses and sizes of arrays that
the engine keeps alive. One argument costs a call less than ten arrays do; `queries` searches all of them in one call.

Suffixes compare with a query token by token. A document's end holds the separator, which is larger than every token and
in no query, so that no match crosses it and no search runs off the end.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray, njit, types
from numba.extending import intrinsic

TOKENS, POINTERS, FIRSTS, SUFFIXES, WIDTH, NARROW, SIGN, VOCABULARY, SAMPLES = range(9)
COLUMNS = 9
STEP = 32  # suffixes from one sample to the next
OUTSIDE = -(1 << 63)  # the answer to a query with a token outside the vocabulary
COMPILED: dict[str, Any] = {"nogil": True, "cache": True, "error_model": "numpy"}


@intrinsic
def at_address(typing_context, address):  # type: ignore[no-untyped-def]
    """An address as a pointer."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.voidptr(types.int64), generate


@njit(**COMPILED)
def pointer(bytes_, width, number):  # type: ignore[no-untyped-def]
    """The position of suffix `number`, little-endian in `width` bytes."""
    at = number * width
    if width == 4:
        return (
            np.int64(bytes_[at]) | np.int64(bytes_[at + 1]) << 8 | np.int64(bytes_[at + 2]) << 16
            | np.int64(bytes_[at + 3]) << 24
        )  # fmt: skip
    if width == 3:
        return np.int64(bytes_[at]) | np.int64(bytes_[at + 1]) << 8 | np.int64(bytes_[at + 2]) << 16
    value = np.int64(0)
    for place in range(width):
        value |= np.int64(bytes_[at + place]) << (8 * place)
    return value


@njit(**COMPILED)
def compare(tokens, position, ngram, start):  # type: ignore[no-untyped-def]
    """Sign of suffix minus n-gram, 0 where the suffix begins with it; tokens before `start` agree."""
    for place in range(start, len(ngram)):
        token = np.int64(tokens[position + place])
        if token != ngram[place]:
            return -1 if token < ngram[place] else 1
    return 0


@njit(**COMPILED)
def _narrowed(tokens, pointers, width, low, high, ngram, start):  # type: ignore[no-untyped-def]
    """The part of suffixes low .. high - 1 that begin with an n-gram whose first `start` tokens they all have."""
    while low < high:  # until one is found that does
        middle = (low + high) >> 1
        sign = compare(tokens, pointer(pointers, width, middle), ngram, start)
        if sign < 0:
            low = middle + 1
        elif sign > 0:
            high = middle
        else:
            first = _first(tokens, pointers, width, low, middle, ngram, start)
            return first, _behind_last(tokens, pointers, width, middle + 1, high, ngram, start)
    return low, low


@njit(**COMPILED)
def _first(tokens, pointers, width, low, high, ngram, start):  # type: ignore[no-untyped-def]
    """The first of suffixes low .. high that begins with the n-gram, as the last of them does."""
    while low < high:
        middle = (low + high) >> 1
        if compare(tokens, pointer(pointers, width, middle), ngram, start) < 0:
            low = middle + 1
        else:
            high = middle
    return low


@njit(**COMPILED)
def _behind_last(tokens, pointers, width, low, high, ngram, start):  # type: ignore[no-untyped-def]
    """Behind the last of suffixes low - 1 .. high - 1 that begins with the n-gram, as the first of them does."""
    while low < high:
        middle = (low + high) >> 1
        if compare(tokens, pointer(pointers, width, middle), ngram, start) > 0:
            high = middle
        else:
            low = middle + 1
    return low


@njit(**COMPILED)
def sample(tokens, order, bits):  # type: ignore[no-untyped-def]
    """The first tokens, as many as 64 bits hold, of every `STEP`th suffix of `order`: uint64 [m]. They ascend as the
    suffixes do; the end of the text counts as 0."""
    found = np.zeros(-(-len(order) // STEP), np.uint64)
    for number in range(len(found)):
        position, key = order[number * STEP], np.uint64(0)
        for place in range(position, position + 64 // bits):
            token = np.uint64(tokens[place]) if place < len(tokens) else np.uint64(0)
            key = key << np.uint64(bits) | token
        found[number] = key
    return found


@njit(**COMPILED)
def sampled(shard, low, high, ngram):  # type: ignore[no-untyped-def]
    """Between which samples the suffixes are, of low .. high - 1, that begin with the first tokens of an n-gram, as
    many as a sample has: the first sample that is one of them, the first that is behind them, and whether the whole
    n-gram was looked at. These samples stand close together, so that a search misses few caches."""
    bits = np.uint64(16 if shard[NARROW] else 32)
    most = 4 if shard[NARROW] else 2
    least_key, key = np.uint64(0), np.uint64(0)
    for place in range(most):
        inside = place < len(ngram)
        least_key = least_key << bits | (np.uint64(ngram[place]) if inside else np.uint64(0))
        key = key << bits | (np.uint64(ngram[place]) if inside else (np.uint64(1) << bits) - np.uint64(1))
    samples = carray(at_address(shard[SAMPLES]), 1 << 60, np.uint64)
    begin, last = -(-low // STEP), -(-high // STEP)
    left = last - begin
    while left > 0:  # without a jump that a processor would have to guess
        half = (left + 1) >> 1
        begin += half if samples[begin + half - 1] < least_key else 0
        left -= half
    behind, step = begin, 1
    while behind + step <= last and samples[behind + step - 1] <= key:  # mostly none or few
        behind, step = behind + step, 2 * step
    last = min(last, behind + step - 1)
    while behind < last:
        middle = (behind + last) >> 1
        if samples[middle] <= key:
            behind = middle + 1
        else:
            last = middle
    return begin, behind, len(ngram) <= most


@njit(**COMPILED)
def _segment(tokens, shard, low, high, ngram):  # type: ignore[no-untyped-def]
    """The part of suffixes low .. high - 1, which have its first token, that begin with an n-gram."""
    pointers, width = carray(at_address(shard[POINTERS]), 1 << 62, np.uint8), shard[WIDTH]
    first, behind, whole = sampled(shard, low, high, ngram)
    before, after = max(low, (first - 1) * STEP + 1), min(high, behind * STEP)
    if whole and first < behind:
        start = _first(tokens, pointers, width, before, first * STEP, ngram, 1)
        return start, _behind_last(tokens, pointers, width, (behind - 1) * STEP + 1, after, ngram, 1)
    return _narrowed(tokens, pointers, width, before, after, ngram, 1)


@njit(**COMPILED)
def _next_is(tokens, pointers, width, low, high, offset, token):  # type: ignore[no-untyped-def]
    """The part of suffixes low .. high - 1, which agree in their first `offset` tokens, that have `token` there."""
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


@njit(**COMPILED)
def _before_ends(tokens, pointers, width, low, high, offset, separator):  # type: ignore[no-untyped-def]
    """Where, among suffixes that agree in `offset` tokens, those begin whose document ends there."""
    if low < high and np.int64(tokens[pointer(pointers, width, high - 1) + offset]) != separator:
        return high  # most contexts never end a document
    return _next_is(tokens, pointers, width, low, high, offset, separator)[0]


@njit(**COMPILED)
def find_in(shard, ngram):  # type: ignore[no-untyped-def]
    """Suffixes of a shard that begin with an n-gram."""
    if len(ngram) == 0:
        return np.int64(0), shard[SUFFIXES]
    firsts = carray(at_address(shard[FIRSTS]), 1 << 62, np.int64)
    low, high = firsts[ngram[0]], firsts[ngram[0] + 1]
    if len(ngram) == 1 or low == high:
        return low, high
    if shard[NARROW]:
        return _segment(carray(at_address(shard[TOKENS]), 1 << 62, np.uint16), shard, low, high, ngram)
    return _segment(carray(at_address(shard[TOKENS]), 1 << 62, np.uint32), shard, low, high, ngram)


@njit(**COMPILED)
def going_on(shard, low, high, offset):  # type: ignore[no-untyped-def]
    """How many of suffixes low .. high - 1, which agree in `offset` tokens, have one more in their document."""
    if offset == 0 or low == high:
        return high - low
    pointers = carray(at_address(shard[POINTERS]), 1 << 62, np.uint8)
    if shard[NARROW]:
        tokens = carray(at_address(shard[TOKENS]), 1 << 62, np.uint16)
        return _before_ends(tokens, pointers, shard[WIDTH], low, high, offset, 0xFFFF) - low
    wide = carray(at_address(shard[TOKENS]), 1 << 62, np.uint32)
    return _before_ends(wide, pointers, shard[WIDTH], low, high, offset, 0xFFFFFFFF) - low


@njit(**COMPILED)
def followed_in(shard, low, high, offset, token):  # type: ignore[no-untyped-def]
    """The part of suffixes low .. high - 1, which agree in `offset` tokens, that have `token` there."""
    if offset == 0:
        firsts = carray(at_address(shard[FIRSTS]), 1 << 62, np.int64)
        return firsts[token], firsts[token + 1]
    pointers = carray(at_address(shard[POINTERS]), 1 << 62, np.uint8)
    if shard[NARROW]:
        tokens = carray(at_address(shard[TOKENS]), 1 << 62, np.uint16)
        return _next_is(tokens, pointers, shard[WIDTH], low, high, offset, token)
    wide = carray(at_address(shard[TOKENS]), 1 << 62, np.uint32)
    return _next_is(wide, pointers, shard[WIDTH], low, high, offset, token)


@njit(**COMPILED)
def token_at(shard, number, offset):  # type: ignore[no-untyped-def]
    """Token `offset` of suffix `number`."""
    pointers = carray(at_address(shard[POINTERS]), 1 << 62, np.uint8)
    position = pointer(pointers, shard[WIDTH], number) + offset
    if shard[NARROW]:
        return np.int64(carray(at_address(shard[TOKENS]), 1 << 62, np.uint16)[position])
    return np.int64(carray(at_address(shard[TOKENS]), 1 << 62, np.uint32)[position])


@njit(**COMPILED)
def following(shard, low, high, offset):  # type: ignore[no-untyped-def]
    """Tokens int64 [m] at `offset` of suffixes low .. high - 1 of one shard, ascending, and their numbers int64 [m]:
    each is passed over by doubling, then bisection, over samples where these have the token and over suffixes between
    two of them, so that the cost goes by how many differ."""
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


@njit(**COMPILED)
def positions(shard, low, high):  # type: ignore[no-untyped-def]
    """Where suffixes low .. high - 1 begin: int64 [high - low]."""
    pointers = carray(at_address(shard[POINTERS]), 1 << 62, np.uint8)
    found = np.empty(high - low, np.int64)
    for number in range(low, high):
        found[number - low] = pointer(pointers, shard[WIDTH], number)
    return found
