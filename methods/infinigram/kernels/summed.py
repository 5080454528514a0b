"""Counts over all shards, in which subtracted shards count negative."""

from __future__ import annotations

import numpy as np

from methods.infinigram.kernels.columns import OUTSIDE, SIGN, VOCABULARY
from methods.infinigram.kernels.compiling import compiled
from methods.infinigram.kernels.followers import followed_in, going_on, token_at
from methods.infinigram.kernels.searching import find_in


@compiled
def count(shards, ngram):  # type: ignore[no-untyped-def]
    """Occurrences of the n-gram int64 [n]; `OUTSIDE` if a token is outside the vocabulary."""
    for token in ngram:
        if token < 0 or token >= shards[0, VOCABULARY]:
            return np.int64(OUTSIDE)
    total = np.int64(0)
    for number in range(len(shards)):
        low, high = find_in(shards[number], ngram)
        total += shards[number, SIGN] * (high - low)
    return total


@compiled
def context(shards, ngram, segments, ends=False):  # type: ignore[no-untyped-def]
    """Occurrences of the n-gram that are followed by a token in their document, or with `ends` all of them. segments:
    int64 [S, 2], filled with the range of these suffixes in each shard."""
    total = np.int64(0)
    for number in range(len(shards)):
        low, high = find_in(shards[number], ngram)
        going = high - low if ends else going_on(shards[number], low, high, len(ngram))
        segments[number, 0], segments[number, 1] = low, low + going
        total += shards[number, SIGN] * going
    return total


@compiled
def followed(shards, segments, offset, token, found):  # type: ignore[no-untyped-def]
    """Occurrences of `token` after a context of `offset` tokens with these segments. found: int64 [S, 2], filled with
    the segments of context and token."""
    total = np.int64(0)
    for number in range(len(shards)):
        low, high = segments[number]
        if low < high:
            low, high = followed_in(shards[number], low, high, offset, token)
        found[number, 0], found[number, 1] = low, high
        total += shards[number, SIGN] * (high - low)
    return total


@compiled
def longest(shards, tokens, segments, ends=False):  # type: ignore[no-untyped-def]
    """Length of the longest suffix of a context int64 [n] that is followed by a token somewhere (with `ends`: that
    occurs), and the number of these occurrences. By doubling, then bisection. segments: filled as by `context`."""
    most = len(tokens)
    known, known_total = 0, context(shards, tokens[most:], segments, ends)
    if known_total <= 0:
        return 0, known_total
    step, absent = 1, most + 1
    while known < most:
        length = min(known + step, most)
        if context(shards, tokens[most - length :], segments, ends) > 0:
            known, step = length, 2 * step
        else:
            absent = length
            break
    while known + 1 < absent:
        middle = (known + absent) >> 1
        if context(shards, tokens[most - middle :], segments, ends) > 0:
            known = middle
        else:
            absent = middle
    return known, context(shards, tokens[most - known :], segments, ends)


@compiled
def one_follows(shards, segments, offset, total):  # type: ignore[no-untyped-def]
    """Whether a single token follows a context of `offset` tokens, which occurs `total` times in these segments."""
    if shards[:, SIGN].min() > 0:  # compare the first and last suffixes of the shards
        first = np.int64(-1)
        for number in range(len(shards)):
            low, high = segments[number]
            for at in (low, high - 1):
                if low < high:
                    token = token_at(shards[number], at, offset)
                    if first >= 0 and token != first:
                        return False
                    first = token
        return first >= 0
    found = np.empty((len(shards), 2), np.int64)
    for number in range(len(shards)):
        low, high = segments[number]
        while shards[number, SIGN] > 0 and low < high:
            token = token_at(shards[number], low, offset)
            count_ = followed(shards, segments, offset, token, found)
            if count_ > 0:
                return count_ == total
            low = found[number, 1]  # all occurrences are subtracted: go to the next token
    return False


@compiled
def probability(shards, tokens, token, longest_):  # type: ignore[no-untyped-def]
    """For a context int64 [n], or with `longest_` for its longest suffix that is followed by a token: (occurrences of
    `token` after it, of any token after it, its length, whether only one token ever follows; False without
    `longest_`). The first is `OUTSIDE` if a token is outside the vocabulary."""
    vocabulary = shards[0, VOCABULARY]
    inside = 0 <= token < vocabulary
    for known in tokens:
        inside = inside and 0 <= known < vocabulary
    if not inside:
        return np.int64(OUTSIDE), np.int64(0), 0, False
    segments, found = np.empty((len(shards), 2), np.int64), np.empty((len(shards), 2), np.int64)
    length = len(tokens)
    if longest_:
        length, total = longest(shards, tokens, segments)
    else:
        total = context(shards, tokens, segments)
    if total <= 0:
        return np.int64(0), total, length, False
    hits = followed(shards, segments, length, token, found)
    return hits, total, length, longest_ and one_follows(shards, segments, length, total)
