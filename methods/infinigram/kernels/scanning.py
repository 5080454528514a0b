"""A text from front to back, and how it goes on."""

from __future__ import annotations

import numpy as np

from methods.infinigram.kernels.columns import SIGN
from methods.infinigram.kernels.compiling import compiled
from methods.infinigram.kernels.followers import following, going_on
from methods.infinigram.kernels.summed import context, followed, longest, one_follows

PERIOD = 256  # longest period of tokens whose repetition is recognised
LONG = 32  # tokens of a context from which a repetition is looked for


@compiled
def scan(shards, tokens, most, ends, lengths, contexts, hits, single):  # type: ignore[no-untyped-def]
    """Fill four arrays [t] for every token of a text int64 [t]. The context of a token is the longest suffix, of at
    most `most` tokens, of the text before it that is followed by a token somewhere, or with `ends` that occurs.

    lengths: of the context. contexts: its occurrences. hits: its occurrences followed by this token. single (bool):
    whether only one token ever follows; False with `ends`. From one token to the next the length grows by at most one,
    so most steps narrow the previous range.
    """
    count_ = len(shards)
    segments, found = np.empty((count_, 2), np.int64), np.empty((count_, 2), np.int64)
    length, place = 0, 0
    total = context(shards, tokens[:0], segments, ends)
    while place < len(tokens):
        lengths[place], contexts[place] = length, total
        single[place] = total > 0 and not ends and one_follows(shards, segments, length, total)
        hits[place] = followed(shards, segments, length, tokens[place], found) if total > 0 else 0
        place += 1
        # the context of the next token: this context and the token, if that occurs
        narrowed = hits[place - 1] > 0 and length < most
        total = np.int64(0)
        if narrowed:
            for number in range(count_):
                low, high = found[number]
                going = high - low if ends else going_on(shards[number], low, high, length + 1)
                segments[number, 0], segments[number, 1] = low, low + going
                total += shards[number, SIGN] * going
        if total > 0:
            length += 1
        else:  # at most as long as before: add this token, drop the first
            if (narrowed or hits[place - 1] == 0) and length >= LONG:
                place, length = _repeated(tokens, place, length, lengths, contexts, hits, single)
                length = min(length, most)
            total = context(shards, tokens[place - length : place], segments, ends)
        tries = 0
        while total <= 0 and length > 0 and tries < 4:  # mostly it is a few tokens shorter
            length, tries = length - 1, tries + 1
            total = context(shards, tokens[place - length : place], segments, ends)
        if total <= 0 and length > 0:  # but not after a long match
            length, total = longest(shards, tokens[place + 1 - length : place], segments, ends)


@compiled
def _repeated(tokens, place, length, lengths, contexts, hits, single):  # type: ignore[no-untyped-def]
    """The place up to which a text goes on with its last `PERIOD` tokens or fewer, filled in up to there, and the most
    tokens that the context of this place may have. Without this a run longer than any in the index takes time in the
    square of its length: a search at each token compares the whole run. length: most tokens of the context of `place`.
    """
    for period in range(1, min(PERIOD, place - 1) + 1):
        run = 0  # of the tokens before `place`, how many equal the token `period` before
        while run <= min(length + period, place - period - 1) and (
            tokens[place - 1 - run] == tokens[place - 1 - run - period]
        ):
            run += 1
        if run < LONG:
            continue
        last = place - period
        while place < len(tokens) and lengths[last] < run:  # the context is that of `last`
            length = lengths[last]
            if tokens[place] != tokens[last]:
                break
            lengths[place], contexts[place], hits[place] = length, contexts[last], hits[last]
            single[place] = single[last]
            length, place, last, run = length + 1, place + 1, last + 1, run + 1
        break
    return place, length


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
