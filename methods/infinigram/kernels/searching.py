"""The suffixes of one shard that begin with an n-gram.

Suffixes are compared with a query token by token. Each document ends with the separator, which is larger than every
token and in no query. So no match crosses it, and no search runs past the end.
"""

from __future__ import annotations

import numpy as np
from numba import carray

from methods.infinigram.kernels.columns import (
    FIRSTS,
    NARROW,
    POINTERS,
    SAMPLES,
    STEP,
    SUFFIXES,
    TOKENS,
    WIDTH,
    at_address,
)
from methods.infinigram.kernels.compiling import compiled


@compiled
def pointer(bytes_, width, number):  # type: ignore[no-untyped-def]
    """The position of suffix `number`, stored little-endian in `width` bytes."""
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


@compiled
def compare(tokens, position, ngram, start):  # type: ignore[no-untyped-def]
    """Sign of suffix minus n-gram, 0 if the suffix begins with it. Tokens before `start` are known to agree."""
    for place in range(start, len(ngram)):
        token = np.int64(tokens[position + place])
        if token != ngram[place]:
            return -1 if token < ngram[place] else 1
    return 0


@compiled
def _narrowed(tokens, pointers, width, low, high, ngram, start):  # type: ignore[no-untyped-def]
    """Range of suffixes low .. high - 1 that begin with an n-gram. All of them have its first `start` tokens."""
    while low < high:  # until a match is found
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


@compiled
def _first(tokens, pointers, width, low, high, ngram, start):  # type: ignore[no-untyped-def]
    """The first of suffixes low .. high that begins with the n-gram. Suffix `high` does."""
    while low < high:
        middle = (low + high) >> 1
        if compare(tokens, pointer(pointers, width, middle), ngram, start) < 0:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def _behind_last(tokens, pointers, width, low, high, ngram, start):  # type: ignore[no-untyped-def]
    """First after the last of suffixes low - 1 .. high - 1 that begins with the n-gram. Suffix `low - 1` does."""
    while low < high:
        middle = (low + high) >> 1
        if compare(tokens, pointer(pointers, width, middle), ngram, start) > 0:
            high = middle
        else:
            low = middle + 1
    return low


@compiled
def sample(tokens, order, bits):  # type: ignore[no-untyped-def]
    """The first 64 bits of tokens of every `STEP`th suffix of `order`: uint64 [m], ascending. Past the end of the text
    tokens count as 0."""
    found = np.zeros(-(-len(order) // STEP), np.uint64)
    for number in range(len(found)):
        position, key = order[number * STEP], np.uint64(0)
        for place in range(position, position + 64 // bits):
            token = np.uint64(tokens[place]) if place < len(tokens) else np.uint64(0)
            key = key << np.uint64(bits) | token
        found[number] = key
    return found


@compiled
def count_firsts(tokens, separator, firsts):  # type: ignore[no-untyped-def]
    """Add to firsts int64 [V + 1], at t + 1, the number of tokens t other than the separator."""
    for token in tokens:
        if token != separator:
            firsts[np.int64(token) + 1] += 1


@compiled
def sampled(shard, low, high, ngram):  # type: ignore[no-untyped-def]
    """Range of samples of suffixes low .. high - 1 whose prefix matches the n-gram's first tokens: (first match, first
    after, whether the prefix covers the whole n-gram). Samples are contiguous, so the search has few cache misses."""
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
    while left > 0:  # branch-free
        half = (left + 1) >> 1
        begin += half if samples[begin + half - 1] < least_key else 0
        left -= half
    behind, step = begin, 1
    while behind + step <= last and samples[behind + step - 1] <= key:  # there are mostly few matches
        behind, step = behind + step, 2 * step
    last = min(last, behind + step - 1)
    while behind < last:
        middle = (behind + last) >> 1
        if samples[middle] <= key:
            behind = middle + 1
        else:
            last = middle
    return begin, behind, len(ngram) <= most


@compiled
def _segment(tokens, shard, low, high, ngram):  # type: ignore[no-untyped-def]
    """Range of suffixes low .. high - 1 that begin with an n-gram. All of them have its first token."""
    pointers, width = carray(at_address(shard[POINTERS]), 1 << 62, np.uint8), shard[WIDTH]
    first, behind, whole = sampled(shard, low, high, ngram)
    before, after = max(low, (first - 1) * STEP + 1), min(high, behind * STEP)
    if whole and first < behind:
        start = _first(tokens, pointers, width, before, first * STEP, ngram, 1)
        return start, _behind_last(tokens, pointers, width, (behind - 1) * STEP + 1, after, ngram, 1)
    return _narrowed(tokens, pointers, width, before, after, ngram, 1)


@compiled
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
