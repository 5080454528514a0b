"""The interface of all decoders: a batch of growing sequences with a key-value cache, and the engine that makes one.

Greedy search, beam search and all drafters run on the same session, so a ratio between two of them compares algorithms,
not implementations. Each row of the batch has its own length. Rows advance by different amounts. Lowering a row's
length crops rejected positions: positions after it are overwritten, never read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from methods.bandwidth import Weights

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Encoded:
    """Encoded sources (ids), for any decoder that attends to vectors of the encoder's width.

    states: [N, d], the tokens of all sources, concatenated; None for a causal model, whose sources are prompts.
    """

    sources: list[Sequence[int]]
    states: torch.Tensor | None = None


class Session(ABC):
    """A batch of sequences being decoded.

    first: per row, the tokens to feed first (the start token, or the prompt of a causal model).
    lengths: per row, the number of positions in the cache. Lower one to crop that row.
    vocabulary: ids below it may be fed; sources may have a vocabulary of their own.
    """

    vocabulary: int
    first: list[list[int]]
    lengths: list[int]

    @abstractmethod
    def advance(self, tokens: Sequence[Sequence[int]], last: bool = False) -> torch.Tensor:
        """Append the tokens `tokens[r]` (at least one) to row r.

        Returns states [N, s] of all tokens, row after row, or with `last` [rows, s] of each row's last token.
        """

    @abstractmethod
    def bidirectional(self, tokens: Sequence[Sequence[int]], wanted: Sequence[int]) -> torch.Tensor:
        """States [sum(wanted), s] of the last `wanted[r]` tokens of rows `tokens[r]` (at least one token, from position
        0 on) without a causal mask: each token attends to all tokens of its row. The cache is neither read nor changed.
        A non-autoregressive drafter fills masked tokens this way (Ge et al., 2022, section 3.2.1)."""

    @abstractmethod
    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """Logits [n, V] of states [n, s]. The caller may change the logits."""

    @abstractmethod
    def select(self, rows: Sequence[int], since: int = 0) -> None:
        """Row i becomes what row rows[i] was; rows may repeat (beams) or be left out (finished sentences).

        since: positions before it are already equal in rows i and rows[i] and are not copied.
        """


class Engine(ABC):
    """A model prepared for decoding.

    ragged: whether rows of one session may have different lengths. weights: those that it reads; None if their size
    depends on the number of tokens.
    """

    ragged: bool
    weights: Weights | None = None

    @abstractmethod
    def encode(self, sources: Sequence[Sequence[int]]) -> Encoded:
        """Run the encoder, or take the sources as a causal model's prompts."""

    @abstractmethod
    def open(self, encoded: Encoded, limits: Sequence[int]) -> Session:
        """A session whose row r decodes source r and advances by at most limits[r] tokens, not counting a prompt. The
        sources may come from another engine whose encoder has the width of this decoder."""

    def start(self, sources: Sequence[Sequence[int]], limits: Sequence[int]) -> Session:
        """A session on sources that this engine encodes."""
        return self.open(self.encode(sources), limits)


def last_of(tokens: Sequence[Sequence[int]], wanted: Sequence[int]) -> list[int]:
    """Indices of the last `wanted[r]` tokens of each row in the concatenation of the rows."""
    ends = accumulate(map(len, tokens))
    return [place for end, count in zip(ends, wanted, strict=True) for place in range(end - count, end)]


def without(finished: Sequence[int], rows: int) -> list[int]:
    """The remaining rows, for `select`. The last rows fill the gaps and the others stay, to copy the least."""
    kept = list(range(rows))
    for row in sorted(finished, reverse=True):
        kept[row] = kept[-1]
        kept.pop()
    return kept
