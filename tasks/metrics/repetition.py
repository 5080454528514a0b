"""Repetition within a text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from harness.common import statistics
from harness.contracts.tasks import Measure


def repetition(texts: Sequence[Sequence[int]], n: int) -> Measure:
    """Mean share of a text's n-grams that occur earlier in the same text; texts with fewer than n tokens count 0."""
    shares = []
    for text in texts:
        ngrams = list(zip(*(text[start:] for start in range(n)), strict=False))
        shares.append(1 - len(set(ngrams)) / len(ngrams) if ngrams else 0.0)
    values = np.array(shares)
    return Measure.of(values.mean(), statistics.mean_interval(values))
