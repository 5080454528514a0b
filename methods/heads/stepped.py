"""Drafting with the model's own body: it reads each drafted word anyway, so only the output layer is saved.

Verification is that of all drafters (`methods.decoding.drafting.verification`). Here the session has advanced while
drafting, so that `advance` hands over the states that are there, and the exact layer reads its weights once for all.
With copies from the prompt, passes of the body are saved too: one reads several words, and keeps those that the screen
would have chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from methods.aggressive.iad import InputGuided
from methods.decoding.drafting.drafter import Drafter
from methods.decoding.engine.session import Session

Choose = Callable[[torch.Tensor], list[int]]  # states [n, s] -> a word for each
Guess = Callable[[int, Sequence[int], int], Sequence[int]]  # row, its words so far, most -> words that may follow


class Stepped(Session):
    """A session that is advanced by `draft`, whose states `advance` returns. passes: of the body."""

    def __init__(self, inner: Session) -> None:
        self.inner, self.first, self.vocabulary = inner, inner.first, inner.vocabulary
        self.lengths = list(inner.lengths)
        self.passes = 0
        self._states: list[list[torch.Tensor]] = []

    def draft(
        self, pending: Sequence[Sequence[int]], most: int, ends: frozenset[int], choose: Choose, guess: Guess
    ) -> list[list[int]]:
        """Feed what is pending in each row, and then words chosen one by one, until a row has `most` or every row has
        an end token. What `guess` gives is read along with a chosen word, and kept as far as it would be chosen. In a
        batch the row that gets ahead, even one that has ended, ends the block for all."""
        inner, drafts = self.inner, [list[int]() for _ in pending]
        inner.lengths = list(self.lengths)
        self._states = [[piece] for piece in inner.advance(pending).split([len(row) for row in pending])]
        self.passes += 1
        chosen: dict[int, int] = {}  # the next word of a row, where it is known
        while max(map(len, drafts)) < most and not all(map(ends.intersection, drafts)):
            rows = [row for row in range(len(drafts)) if row not in chosen]
            if rows:
                chosen |= zip(rows, choose(torch.cat([self._states[row][-1][-1:] for row in rows])), strict=True)
            written = [[*draft, chosen[row]] for row, draft in enumerate(drafts)]
            tokens = [
                [chosen[row], *(() if ends.intersection(words) else guess(row, words, most - len(words)))]
                for row, words in enumerate(written)
            ]
            lengths, chosen = list(inner.lengths), {}
            alone = max(map(len, tokens)) == 1
            states = inner.advance(tokens, last=alone).split([len(words) for words in tokens])
            self.passes += 1
            for row, (words, own) in enumerate(zip(tokens, states, strict=True)):
                kept = 1
                while kept < len(words) and row not in chosen:
                    (word,) = choose(own[kept - 1 : kept])
                    if word == words[kept]:
                        kept += 1
                    else:
                        chosen[row] = word
                drafts[row] += words[:kept]
                self._states[row].append(own[:kept])
                inner.lengths[row] = lengths[row] + kept
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
    """Drafts at most `block` - 1 words: the exact layer also gives the word after the last of them. copies: drafts from
    the prompt that a pass of the body reads along."""

    def __init__(
        self, session: Stepped, block: int, ends: frozenset[int], choose: Choose, copies: InputGuided | None
    ) -> None:
        self._session, self._block, self._ends, self._choose, self._copies = session, block, ends, choose, copies
        self._pending = dict(enumerate(session.first))

    def draft(self, outputs: Sequence[int], most: Sequence[int]) -> list[Sequence[int]]:
        ahead = self._copies and self._copies.fork()  # follows words that may be rejected
        seen = [0] * len(outputs)

        def guess(row: int, words: Sequence[int], count: int) -> Sequence[int]:
            if ahead is None or count < 1:
                return ()
            ahead.accept(outputs[row], words[seen[row] :], 0)
            seen[row] = len(words)
            return ahead.draft([outputs[row]], [count])[0]

        pending = [self._pending[output] for output in outputs]
        return [*self._session.draft(pending, min(self._block - 1, *most), self._ends, self._choose, guess)]

    def accept(self, output: int, tokens: Sequence[int], drafted: int) -> None:
        self._pending[output] = list(tokens[-1:])
        if self._copies is not None:
            self._copies.accept(output, tokens, drafted)
