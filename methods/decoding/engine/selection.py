"""Compiled searches for the largest of many scores."""

from __future__ import annotations

import numpy as np
from numba import njit

from methods.decoding.engine.kernels import FAST

CANDIDATES = 16


@njit(**FAST)
def largest(values, count):  # type: ignore[no-untyped-def]
    """The `count` largest of float32 values [n], best first, their indices int64 [count], and whether there is a tie
    among them or between the last and one left out. Needs count <= n."""
    best, places = np.empty(count, np.float32), np.empty(count, np.int64)
    held, tied = 0, False
    for place in range(len(values)):
        value = values[place]
        if held == count:
            if value < best[count - 1]:
                continue
            if value == best[count - 1]:
                tied = True
                continue
        at = min(held, count - 1)
        while at > 0 and best[at - 1] < value:
            best[at], places[at] = best[at - 1], places[at - 1]
            at -= 1
        best[at], places[at] = value, place
        held = min(held + 1, count)
        tied = tied or (at > 0 and best[at - 1] == value)
    return best, places, tied


@njit(**FAST)
def likeliest(logits, after, before):  # type: ignore[no-untyped-def]
    """The best of the `CANDIDATES` best tokens of logits float32 [V] once `after[token] @ before` is added to each, and
    its probability among them. after: [V, r]; before: [r]; r may be 0."""
    scores, tokens, _ = largest(logits, min(CANDIDATES, len(logits)))
    for place, token in enumerate(tokens):
        scores[place] += (after[token] * before).sum()
    best = scores.argmax()
    return tokens[best], 1 / np.exp(scores - scores[best]).sum()
