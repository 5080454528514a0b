"""What every decoder drives: a batch of growing sequences with a key-value cache, and the engine that makes one.

Greedy, beam search and all drafters run on the same session, so that a ratio between two of them compares algorithms
and not implementations. A row of the batch has its own length: rows advance by different amounts, and rejected
positions are cropped by lowering a row's length (what lies behind it is overwritten, never read).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Encoded:
    """Sources (ids) that an encoder has read, for any decoder that attends to vectors of its width.

    states: [N, d], the sources' tokens one source behind the other; None for a causal model, whose sources are prompts.
    """

    sources: list[Sequence[int]]
    states: torch.Tensor | None = None


class Session(ABC):
    """A batch of sequences being decoded.

    first: per row, the tokens to feed before anything else (the start token, or the prompt of a causal model).
    lengths: per row, how many positions the cache holds. Lower one to crop that row.
    vocabulary: ids below it may be fed; sources may have a vocabulary of their own.
    """

    vocabulary: int
    first: list[list[int]]
    lengths: list[int]

    @abstractmethod
    def advance(self, tokens: Sequence[Sequence[int]], last: bool = False) -> torch.Tensor:
        """Feed row r the tokens `tokens[r]` (at least one) behind what it holds and lengthen it by as many.

        Returns states [N, s], the rows' tokens one row behind the other, or [rows, s] with `last`, each row's last one.
        """

    @abstractmethod
    def bidirectional(self, tokens: Sequence[Sequence[int]], wanted: Sequence[int]) -> torch.Tensor:
        """States [sum(wanted), s] of the last `wanted[r]` tokens of rows `tokens[r]` (at least one, from position 0 on)
        without causal mask: each token attends to all tokens of its row. The cache is neither read nor changed. A
        non-autoregressive drafter fills masked tokens this way (Ge et al., 2022, section 3.2.1)."""

    @abstractmethod
    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """Logits [n, V] of states [n, s], which the caller may change."""

    @abstractmethod
    def select(self, rows: Sequence[int], since: int = 0) -> None:
        """Row i becomes what row rows[i] was; rows may repeat (beams) or be left out (finished sentences).

        since: positions before it are known to be equal in row i and row rows[i], and are not copied.
        """


class Engine(ABC):
    """A model made ready for decoding.

    ragged: whether rows of one session may have different lengths.
    """

    ragged: bool

    @abstractmethod
    def encode(self, sources: Sequence[Sequence[int]]) -> Encoded:
        """Run the encoder, or take the sources as a causal model's prompts."""

    @abstractmethod
    def open(self, encoded: Encoded, limits: Sequence[int]) -> Session:
        """A session whose row r decodes source r and advances by at most limits[r] tokens, apart from a prompt. The
        sources may have been encoded by another engine whose encoder has this decoder's width."""

    def start(self, sources: Sequence[Sequence[int]], limits: Sequence[int]) -> Session:
        """A session on sources that this engine encodes."""
        return self.open(self.encode(sources), limits)


def last_of(tokens: Sequence[Sequence[int]], wanted: Sequence[int]) -> list[int]:
    """Where the last `wanted[r]` tokens of each row are when the rows lie one behind the other."""
    ends = accumulate(map(len, tokens))
    return [place for end, count in zip(ends, wanted, strict=True) for place in range(end - count, end)]


def without(finished: Sequence[int], rows: int) -> list[int]:
    """The rows that stay, for `select`: each in its place where it can, the last ones in the gaps. Least is copied."""
    kept = list(range(rows))
    for row in sorted(finished, reverse=True):
        kept[row] = kept[-1]
        kept.pop()
    return kept
