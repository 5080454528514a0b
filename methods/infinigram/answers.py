"""The engine's answers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class NgramProbability:
    """count / context_count; NaN if the context never occurs."""

    count: int
    context_count: int

    @property
    def probability(self) -> float:
        return self.count / self.context_count if self.context_count else float("nan")


@dataclass(frozen=True, slots=True)
class InfinigramProbability(NgramProbability):
    """n: the effective n, 1 + the context's length. sparse: whether the context is always followed by the same
    token."""

    n: int
    sparse: bool


@dataclass(frozen=True, slots=True)
class Distribution:
    """The tokens that follow a context, int64 [m] ascending, and their counts int64 [m]."""

    tokens: NDArray[np.int64]
    counts: NDArray[np.int64]

    @property
    def probabilities(self) -> NDArray[np.float64]:
        """float64 [m], summing to 1; empty if the context never occurs."""
        return self.counts / max(int(self.counts.sum()), 1)


@dataclass(frozen=True, slots=True)
class InfinigramDistribution(Distribution):
    """n: the effective n. sparse: whether a single token follows."""

    n: int
    sparse: bool


@dataclass(frozen=True, slots=True)
class Document:
    """A document that holds a query. index, shard, number: its location. length: its number of tokens. tokens: a part
    of its text around a match, beginning at position `window`. matches: positions in the document at which n-grams of
    the query begin in this part. lines: of a text file, those that begin in the document up to the match, without the
    document's first. metadata: as given to the build."""

    index: Path
    shard: int
    number: int
    length: int
    matches: list[int]
    window: int
    tokens: list[int]
    lines: int
    metadata: Any


@dataclass(frozen=True, slots=True)
class CnfCount:
    """Number of documents that match an AND of ORs. approximate: a clause had too many matches and was sampled."""

    documents: int
    approximate: bool


@dataclass(frozen=True, slots=True)
class Scores:
    """For every token of a text [T]: the effective n, occurrences of the context, occurrences of the token after it,
    and whether it is the only token that follows the context."""

    n: NDArray[np.int64]
    context_counts: NDArray[np.int64]
    counts: NDArray[np.int64]
    sparse: NDArray[np.bool_]

    def behind(self, first: int) -> Scores:
        """The scores without those of the first `first` tokens."""
        return Scores(*(getattr(self, name)[first:] for name in self.__slots__))

    @property
    def probabilities(self) -> NDArray[np.float64]:
        """float64 [T]."""
        return self.counts / np.maximum(self.context_counts, 1)


@dataclass(frozen=True, slots=True)
class Span:
    """Tokens begin .. end - 1 of a text, which occur `count` times. No longer span around them occurs."""

    begin: int
    end: int
    count: int
    documents: list[Document]
