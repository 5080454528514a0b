"""Differences of an output from its source.

Edits: the spans in which the two differ. Edit ratio: edit distance in tokens over the source's length (Ge et al., 2022,
Figure 5: "the normalized (by the input length) edit distance between the input and output"). It is 0 for a copy. Above
1 the output is longer than the source and shares little with it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tasks.metrics.spans import edits


def edit_distance(source: Sequence[Hashable], output: Sequence[Hashable]) -> int:
    """Levenshtein distance of two token sequences (words or ids): insertions, deletions, substitutions at 1 each."""
    numbers: dict[Hashable, int] = {}
    left, right = (
        np.array([numbers.setdefault(token, len(numbers)) for token in tokens], np.int64) for tokens in (source, output)
    )
    return int(_distance(left, right))


def edit_ratios(sources: Sequence[Sequence[Hashable]], outputs: Sequence[Sequence[Hashable]]) -> NDArray[np.float64]:
    """float64 [n]: edit distance of each output to its source over the source's length (an empty source counts 1)."""
    pairs = zip(sources, outputs, strict=True)
    return np.array([edit_distance(source, output) / max(len(source), 1) for source, output in pairs], np.float64)


def edit_counts(sources: Sequence[Sequence[Hashable]], outputs: Sequence[Sequence[Hashable]]) -> NDArray[np.int64]:
    """int64 [n]: number of edits of each output; adjacent changes are one edit."""
    return np.array([len(edits(source, output)) for source, output in zip(sources, outputs, strict=True)], np.int64)


@njit(nogil=True, cache=True)
def _distance(left, right):  # type: ignore[no-untyped-def]
    row = np.arange(len(right) + 1)
    for i in range(len(left)):
        diagonal, row[0] = row[0], i + 1
        for j in range(len(right)):
            changed = diagonal + (left[i] != right[j])
            diagonal = row[j + 1]
            row[j + 1] = min(changed, row[j] + 1, diagonal + 1)
    return row[-1]
