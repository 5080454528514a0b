"""A text from front to back, and how it goes on."""

from __future__ import annotations

import numpy as np

from methods.infinigram.kernels.columns import SIGN
from methods.infinigram.kernels.compiling import compiled
from methods.infinigram.kernels.followers import following, going_on
from methods.infinigram.kernels.summed import context, followed, longest, one_follows


@compiled
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


@compiled
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


@compiled
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
