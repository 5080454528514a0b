"""What the engine answers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class NgramProbability:
    """count / context_count; NaN where the context never occurs."""

    count: int
    context_count: int

    @property
    def probability(self) -> float:
        return self.count / self.context_count if self.context_count else float("nan")


@dataclass(frozen=True, slots=True)
class InfinigramProbability(NgramProbability):
    """n: the effective one, 1 + the context's length. sparse: whether a single token follows the context anywhere."""

    n: int
    sparse: bool


@dataclass(frozen=True, slots=True)
class Distribution:
    """What follows a context: tokens int64 [m] ascending, how often int64 [m]."""

    tokens: NDArray[np.int64]
    counts: NDArray[np.int64]

    @property
    def probabilities(self) -> NDArray[np.float64]:
        """float64 [m], summing to 1; empty where the context never occurs."""
        return self.counts / max(int(self.counts.sum()), 1)


@dataclass(frozen=True, slots=True)
class InfinigramDistribution(Distribution):
    """n: the effective one. sparse: whether a single token follows."""

    n: int
    sparse: bool


@dataclass(frozen=True, slots=True)
class Document:
    """A document that holds a query. index, shard, number: where it is. length: its tokens. matches: where, in it, the
    n-grams of the query begin. tokens: a window of its text around the first match, which begins at `window`.
    metadata: what was given when the index was built."""

    index: Path
    shard: int
    number: int
    length: int
    matches: list[int]
    window: int
    tokens: list[int]
    metadata: Any


@dataclass(frozen=True, slots=True)
class CnfCount:
    """Documents that hold an AND of ORs. approximate: whether a clause had too many matches and was sampled."""

    documents: int
    approximate: bool


@dataclass(frozen=True, slots=True)
class Scores:
    """Of every token of a text [T]: the effective n, how often its context occurs, how often it follows there, and
    whether a single token does."""

    n: NDArray[np.int64]
    context_counts: NDArray[np.int64]
    counts: NDArray[np.int64]
    sparse: NDArray[np.bool_]

    @property
    def probabilities(self) -> NDArray[np.float64]:
        """float64 [T]."""
        return self.counts / np.maximum(self.context_counts, 1)


@dataclass(frozen=True, slots=True)
class Span:
    """Tokens begin .. end - 1 of a text, which occur `count` times; no longer span around them does."""

    begin: int
    end: int
    count: int
    documents: list[Document]
