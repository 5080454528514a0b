"""Drafts from the source for assisted decoding in transformers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers.generation.candidate_generator import CandidateGenerator


class SourceCandidates(CandidateGenerator):
    """The drafter in the interface of transformers.

    framed: the decoder's start token counts as the token before the source.
    """

    def __init__(
        self, source: list[int], ends: Sequence[int], longest: int, tokens: int, ngram: int, framed: bool
    ) -> None:
        self.source, self.ends, self.longest = source, ends, longest
        self.tokens, self.ngram, self.framed = tokens, ngram, framed

    def get_candidates(self, input_ids: Any, **_: Any) -> tuple[Any, None]:
        """input_ids [1, t] with the draft appended, and no logits."""
        written: list[int] = input_ids[0].tolist()
        room = min(self.tokens, self.longest - len(written) - 1)
        place = self._place(written)
        draft = self.source[place : place + max(room, 0)] if place is not None else []
        end = next((number for number, token in enumerate(draft) if token in self.ends), len(draft))
        if not end:
            return input_ids, None
        return torch.cat([input_ids, input_ids.new_tensor([draft[:end]])], 1), None

    def update_candidate_strategy(self, *_: Any, **__: Any) -> None:
        """Drafts do not depend on how many tokens were accepted."""

    def _place(self, written: list[int]) -> int | None:
        """Position in the source after the first occurrence of the output's longest suffix that occurs in it."""
        if self.framed:
            if len(written) == 1:
                return 0
            written = written[1:]
        for size in range(min(self.ngram, len(written)), 0, -1):
            end = written[-size:]
            for place in range(len(self.source) - size):
                if self.source[place : place + size] == end:
                    return place + size
        return None
