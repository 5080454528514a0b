"""Compiled searches in the suffix arrays of an engine's shards.

All are in one file, because numba's cache is invalidated only by changes to the file of the outermost function. They
are in the order of their calls: one shard; all shards; a text from front to back; many n-grams at once.

An engine's shards are one table, int64 [S, 9], whose columns are numbered below: addresses and sizes of arrays that the
engine keeps alive. A call with one argument is cheaper than one with ten arrays.

Suffixes are compared with a query token by token. Each document ends with the separator, which is larger than every
token and in no query. So no match crosses it, and no search runs past the end.
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
GROUP = 64  # searches that run in lockstep
_ANY, _LEFT, _RIGHT = range(3)  # target of a search: any match, the first match, the first after the last match
_COMPILED: dict[str, Any] = {"nogil": True, "cache": True, "error_model": "numpy"}


@intrinsic
def at_address(typing_context, address):  # type: ignore[no-untyped-def]
    """An address as a pointer."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.voidptr(types.int64), generate


@njit(**_COMPILED)
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


@njit(**_COMPILED)
def compare(tokens, position, ngram, start):  # type: ignore[no-untyped-def]
    """Sign of suffix minus n-gram, 0 if the suffix begins with it. Tokens before `start` are known to agree."""
    for place in range(start, len(ngram)):
        token = np.int64(tokens[position + place])
        if token != ngram[place]:
            return -1 if token < ngram[place] else 1
    return 0


@njit(**_COMPILED)
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


@njit(**_COMPILED)
def _first(tokens, pointers, width, low, high, ngram, start):  # type: ignore[no-untyped-def]
    """The first of suffixes low .. high that begins with the n-gram. Suffix `high` does."""
    while low < high:
        middle = (low + high) >> 1
        if compare(tokens, pointer(pointers, width, middle), ngram, start) < 0:
            low = middle + 1
        else:
            high = middle
    return low


@njit(**_COMPILED)
def _behind_last(tokens, pointers, width, low, high, ngram, start):  # type: ignore[no-untyped-def]
    """First after the last of suffixes low - 1 .. high - 1 that begins with the n-gram. Suffix `low - 1` does."""
    while low < high:
        middle = (low + high) >> 1
        if compare(tokens, pointer(pointers, width, middle), ngram, start) > 0:
            high = middle
        else:
            low = middle + 1
    return low


@njit(**_COMPILED)
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


@njit(**_COMPILED)
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


@njit(**_COMPILED)
def _segment(tokens, shard, low, high, ngram):  # type: ignore[no-untyped-def]
    """Range of suffixes low .. high - 1 that begin with an n-gram. All of them have its first token."""
    pointers, width = carray(at_address(shard[POINTERS]), 1 << 62, np.uint8), shard[WIDTH]
    first, behind, whole = sampled(shard, low, high, ngram)
    before, after = max(low, (first - 1) * STEP + 1), min(high, behind * STEP)
    if whole and first < behind:
        start = _first(tokens, pointers, width, before, first * STEP, ngram, 1)
        return start, _behind_last(tokens, pointers, width, (behind - 1) * STEP + 1, after, ngram, 1)
    return _narrowed(tokens, pointers, width, before, after, ngram, 1)


@njit(**_COMPILED)
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


@njit(**_COMPILED)
def _before_ends(tokens, pointers, width, low, high, offset, separator):  # type: ignore[no-untyped-def]
    """The first of suffixes low .. high - 1 whose document ends at `offset`. They agree in the tokens before it."""
    if low < high and np.int64(tokens[pointer(pointers, width, high - 1) + offset]) != separator:
        return high  # most contexts never end a document
    return _next_is(tokens, pointers, width, low, high, offset, separator)[0]


@njit(**_COMPILED)
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


@njit(**_COMPILED)
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


@njit(**_COMPILED)
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


@njit(**_COMPILED)
def token_at(shard, number, offset):  # type: ignore[no-untyped-def]
    """Token `offset` of suffix `number`."""
    pointers = carray(at_address(shard[POINTERS]), 1 << 62, np.uint8)
    position = pointer(pointers, shard[WIDTH], number) + offset
    if shard[NARROW]:
        return np.int64(carray(at_address(shard[TOKENS]), 1 << 62, np.uint16)[position])
    return np.int64(carray(at_address(shard[TOKENS]), 1 << 62, np.uint32)[position])


@njit(**_COMPILED)
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


@njit(**_COMPILED)
def positions(shard, low, high):  # type: ignore[no-untyped-def]
    """Positions of suffixes low .. high - 1: int64 [high - low]."""
    pointers = carray(at_address(shard[POINTERS]), 1 << 62, np.uint8)
    found = np.empty(high - low, np.int64)
    for number in range(low, high):
        found[number - low] = pointer(pointers, shard[WIDTH], number)
    return found


# ---------------------------------------------------------------- all shards; subtracted ones count negative


@njit(**_COMPILED)
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


@njit(**_COMPILED)
def context(shards, ngram, segments):  # type: ignore[no-untyped-def]
    """Occurrences of the n-gram that are followed by a token in their document. segments: int64 [S, 2], filled with
    the range of these suffixes in each shard."""
    total = np.int64(0)
    for number in range(len(shards)):
        low, high = find_in(shards[number], ngram)
        going = going_on(shards[number], low, high, len(ngram))
        segments[number, 0], segments[number, 1] = low, low + going
        total += shards[number, SIGN] * going
    return total


@njit(**_COMPILED)
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


@njit(**_COMPILED)
def longest(shards, tokens, segments):  # type: ignore[no-untyped-def]
    """Length of the longest suffix of a context int64 [n] that is followed by a token somewhere, and the number of
    these occurrences. By doubling, then bisection. segments: filled as by `context`."""
    most = len(tokens)
    known, known_total = 0, context(shards, tokens[most:], segments)
    if known_total <= 0:
        return 0, known_total
    step, absent = 1, most + 1
    while known < most:
        length = min(known + step, most)
        if context(shards, tokens[most - length :], segments) > 0:
            known, step = length, 2 * step
        else:
            absent = length
            break
    while known + 1 < absent:
        middle = (known + absent) >> 1
        if context(shards, tokens[most - middle :], segments) > 0:
            known = middle
        else:
            absent = middle
    return known, context(shards, tokens[most - known :], segments)


@njit(**_COMPILED)
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


@njit(**_COMPILED)
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


# ---------------------------------------------------------------- a text from front to back


@njit(**_COMPILED)
def scan(shards, tokens, most, lengths, contexts, hits, single):  # type: ignore[no-untyped-def]
    """Fill four arrays [t] for every token of a text int64 [t]. The context of a token is the longest suffix, of at
    most `most` tokens, of the text before it that is followed by a token somewhere.

    lengths: of the context. contexts: its occurrences followed by a token. hits: its occurrences followed by this
    token. single (bool): whether only one token ever follows. From one token to the next the length grows by at most
    one, so most steps narrow the previous range.
    """
    count_ = len(shards)
    segments, found = np.empty((count_, 2), np.int64), np.empty((count_, 2), np.int64)
    length = 0
    total = context(shards, tokens[:0], segments)
    for place in range(len(tokens)):
        lengths[place], contexts[place] = length, total
        single[place] = total > 0 and one_follows(shards, segments, length, total)
        hits[place] = followed(shards, segments, length, tokens[place], found) if total > 0 else 0
        # the context of the next token: this context and the token, if that occurs and is followed by a token
        if hits[place] > 0 and length + 1 <= most:
            length, total = length + 1, np.int64(0)
            for number in range(count_):
                low, high = found[number]
                going = going_on(shards[number], low, high, length)
                segments[number, 0], segments[number, 1] = low, low + going
                total += shards[number, SIGN] * going
        else:  # at most as long as before: add this token, drop the first
            total = context(shards, tokens[place + 1 - length : place + 1], segments)
        tries = 0
        while total <= 0 and length > 0 and tries < 4:  # mostly it is a few tokens shorter
            length, tries = length - 1, tries + 1
            total = context(shards, tokens[place + 1 - length : place + 1], segments)
        if total <= 0 and length > 0:  # but not after a long match
            length, total = longest(shards, tokens[place + 2 - length : place + 1], segments)


@njit(**_COMPILED)
def _most_frequent(shards, segments, offset, found):  # type: ignore[no-untyped-def]
    """The most frequent token after a context of `offset` tokens, and its count; ties: the lowest token. found: filled
    with the segments of context and token."""
    best, often = np.int64(-1), np.int64(0)
    for number in range(len(shards)):
        low, high = segments[number]
        if shards[number, SIGN] < 0 or low >= high:
            continue
        tokens, counts = following(shards[number], low, high, offset)
        for place in range(len(tokens)):
            total = counts[place] if len(shards) == 1 else followed(shards, segments, offset, tokens[place], found)
            if total > often or (total == often and total > 0 and tokens[place] < best):
                best, often = tokens[place], total
    if best >= 0:
        followed(shards, segments, offset, best, found)
    return best, often


@njit(**_COMPILED)
def continuation(shards, tokens, most, least, share):  # type: ignore[no-untyped-def]
    """Up to `most` tokens after the longest suffix of a context int64 [n] that occurs, each the most frequent one after
    those before it. Stops before a token with less than `share` of the continuations. Empty if the suffix has fewer
    than `least` tokens."""
    count_ = len(shards)
    segments, found = np.empty((count_, 2), np.int64), np.empty((count_, 2), np.int64)
    length, total = longest(shards, tokens, segments)
    written, done = np.empty(most, np.int64), 0
    while length >= least and done < most and total > 0:
        token, often = _most_frequent(shards, segments, length, found)
        if token < 0 or often < share * total:
            break
        written[done] = token
        done, length, total = done + 1, length + 1, np.int64(0)
        for number in range(count_):
            low, high = found[number]
            going = going_on(shards[number], low, high, length)
            segments[number, 0], segments[number, 1] = low, low + going
            total += shards[number, SIGN] * going
    return written[:done]


# ---------------------------------------------------------------- many n-grams at once


@njit(**_COMPILED)
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


@njit(**_COMPILED)
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
