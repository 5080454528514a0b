"""The non-autoregressive drafter at work (Ge et al., 2022, section 3.2.1)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from methods.decoding.drafting.drafter import Drafter
from methods.decoding.session import Encoded, Engine


class NarDrafter(Drafter):
    """Fills a block of masks for all outputs asked for in one pass of the drafter's decoder."""

    def __init__(
        self, engine: Engine, encoded: Encoded, block: int, mask: int, start: int, window: int, limits: Sequence[int]
    ) -> None:
        """encoded: the sources, as an encoder of the drafter's width has read them. window: positions that the drafter
        has."""
        self.session = engine.open(encoded, limits)
        self.block, self.mask, self.start, self.window = block, mask, start, window
        self.written: list[list[int]] = [[] for _ in limits]
        self.rows = list(range(len(limits)))  # the output that each row of the session belongs to

    def draft(self, outputs: Sequence[int], most: Sequence[int]) -> list[Sequence[int]]:
        if not any(most):
            return [() for _ in outputs]
        if list(outputs) != self.rows:
            places = {output: row for row, output in enumerate(self.rows)}
            self.session.select([places[output] for output in outputs])
            self.rows = list(outputs)
        # as many masks near the limit as elsewhere: the drafter learned to fill a block whose end has no target
        known = [[self.start, *self.written[output]] for output in outputs]
        masks = [max(min(self.block, self.window - len(row)), 0) for row in known]
        states = self.session.bidirectional([[*row, *[self.mask] * n] for row, n in zip(known, masks, strict=True)])
        ends = np.cumsum([len(row) + n for row, n in zip(known, masks, strict=True)]).tolist()
        hidden = torch.cat([states[end - n : end] for end, n in zip(ends, masks, strict=True)])
        best = iter(self.session.logits(hidden)[:, : self.mask].argmax(-1).tolist())
        blocks = [[next(best) for _ in range(n)] for n in masks]
        return [tokens[:count] for tokens, count in zip(blocks, most, strict=True)]

    def accept(self, output: int, tokens: Sequence[int], drafted: int) -> None:
        self.written[output].extend(tokens)
