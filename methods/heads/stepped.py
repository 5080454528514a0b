"""Drafting with the model's own body: it reads each drafted word anyway, so only the output layer is saved.

Verification is that of all drafters (`methods.decoding.drafting.verification`). Here the session has advanced while
drafting, so that `advance` hands over the states that are there, and the exact layer reads its weights once for all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from methods.decoding.drafting.drafter import Drafter
from methods.decoding.engine.session import Session

Choose = Callable[[torch.Tensor], list[int]]  # states [rows, s] -> a word for each row


class Stepped(Session):
    """A session that is advanced by `draft`, whose states `advance` returns."""

    def __init__(self, inner: Session) -> None:
        self.inner, self.first, self.vocabulary = inner, inner.first, inner.vocabulary
        self.lengths = list(inner.lengths)
        self._states: list[list[torch.Tensor]] = []

    def draft(
        self, pending: Sequence[Sequence[int]], most: int, ends: frozenset[int], choose: Choose
    ) -> list[list[int]]:  # fmt: skip
        """Feed what is pending in each row and then `most` words chosen one by one, fewer once every row has drafted an
        end token."""
        inner, drafts = self.inner, [list[int]() for _ in pending]
        inner.lengths = list(self.lengths)
        pieces = inner.advance(pending).split([len(row) for row in pending])
        self._states = [[piece] for piece in pieces]
        while most and not all(ends.intersection(draft) for draft in drafts):
            most -= 1
            words = choose(torch.cat([states[-1][-1:] for states in self._states]))
            states = inner.advance([[word] for word in words], last=True)
            for draft, own, word, state in zip(drafts, self._states, words, states, strict=True):
                draft.append(word)
                own.append(state[None])
        return drafts

    def advance(self, tokens: Sequence[Sequence[int]], last: bool = False) -> torch.Tensor:
        self.lengths = [length + len(row) for length, row in zip(self.lengths, tokens, strict=True)]
        rows = (torch.cat(states)[: len(row)] for states, row in zip(self._states, tokens, strict=True))
        return torch.cat([states[-1:] if last else states for states in rows])

    def bidirectional(self, tokens: Sequence[Sequence[int]], wanted: Sequence[int]) -> torch.Tensor:
        return self.inner.bidirectional(tokens, wanted)

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        return self.inner.logits(states)

    def select(self, rows: Sequence[int], since: int = 0) -> None:
        self.inner.lengths = list(self.lengths)
        self.inner.select(rows, since)
        self.lengths = list(self.inner.lengths)


class ScreenDrafter(Drafter):
    """Drafts `block` - 1 words: the exact layer also gives the word after the last of them."""

    def __init__(self, session: Stepped, block: int, ends: frozenset[int], choose: Choose) -> None:
        self._session, self._block, self._ends, self._choose = session, block, ends, choose
        self._pending = dict(enumerate(session.first))

    def draft(self, outputs: Sequence[int], most: Sequence[int]) -> list[Sequence[int]]:
        pending = [self._pending[output] for output in outputs]
        return [*self._session.draft(pending, min(self._block - 1, *most), self._ends, self._choose)]

    def accept(self, output: int, tokens: Sequence[int], drafted: int) -> None:
        self._pending[output] = list(tokens[-1:])
