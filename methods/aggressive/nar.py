"""Drafting with the non-autoregressive drafter (Ge et al., 2022, section 3.2.1)."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from methods.decoding.drafting.drafter import Drafter
from methods.decoding.engine.session import Encoded, Engine
from methods.decoding.search.decoder import Batch


class NarDrafter(Drafter):
    """Fills a block of masks for all outputs in one pass of the drafter's decoder. Tokens that the model's generation
    configuration forbids, given the tokens before them, are never drafted."""

    def __init__(self, engine: Engine, encoded: Encoded, block: int, batch: Batch) -> None:
        """encoded: the sources, encoded in the drafter's width."""
        self.session = engine.open(encoded, batch.limits)
        self.block, self.batch = block, batch
        self.written: list[list[int]] = [[] for _ in batch.limits]
        self.rows = list(range(len(batch.limits)))  # the output that each row of the session belongs to

    def draft(self, outputs: Sequence[int], most: Sequence[int]) -> list[Sequence[int]]:
        if not any(most):
            return [() for _ in outputs]
        if list(outputs) != self.rows:
            places = {output: row for row, output in enumerate(self.rows)}
            self.session.select([places[output] for output in outputs])
            self.rows = list(outputs)
        model = self.batch.model
        # a full block of masks even near the limit: the drafter was trained on blocks that reach past the target
        known = [[model.start_id, *self.written[output]] for output in outputs]
        masks = [max(min(self.block, model.window - len(row)), 0) for row in known]
        filled = [[*row, *[model.vocabulary_size] * n] for row, n in zip(known, masks, strict=True)]
        logits = self.session.logits(self.session.bidirectional(filled, masks))[:, : model.vocabulary_size]
        if self.batch.constraints.by_position:
            rows = zip(outputs, logits.split(masks), most, strict=True)
            blocks = [self._one_by_one(output, those[:count]) for output, those, count in rows]
        else:
            self.batch.constraints.restrict(logits, ())
            best = iter(logits.argmax(-1).tolist())
            blocks = [[next(best) for _ in range(n)] for n in masks]
        return [tokens[:count] for tokens, count in zip(blocks, most, strict=True)]

    def _one_by_one(self, output: int, logits: torch.Tensor) -> list[int]:
        """The best allowed tokens of an output's block, chosen left to right. logits [masks, V] change in place."""
        block: list[int] = []
        for place in range(len(logits)):  # `split` would give one piece of no masks
            row = logits[place : place + 1]
            written = [*self.written[output], *block]
            self.batch.constraints.restrict(row, [([self.batch.model.start_id], written, self.batch.limits[output])])
            block.append(int(row.argmax()))
        return block

    def accept(self, output: int, tokens: Sequence[int], drafted: int) -> None:
        self.written[output].extend(tokens)
