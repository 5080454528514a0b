"""Drafting with the non-autoregressive drafter (Ge et al., 2022, section 3.2.1)."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from methods.aggressive.markov import Tables
from methods.decoding.drafting.drafter import Drafter
from methods.decoding.engine.selection import likeliest
from methods.decoding.engine.session import Session
from methods.decoding.search.decoder import Batch


class NarDrafter(Drafter):
    """Fills a block of masks for all outputs in one pass of the drafter's decoder. Tokens that the model's generation
    configuration forbids, given the tokens before them, are never drafted."""

    def __init__(self, session: Session, block: int, batch: Batch, head: Tables, confidence: float = 0.0) -> None:
        """session: the drafter's, over the batch's sources. head, confidence: see `BlockOptions`."""
        self.session = session
        self.block, self.batch, self.confidence = block, batch, confidence
        self.before, self.after = head
        self.one_by_one = self.after.size > 0 or confidence > 0 or batch.constraints.by_position
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
        if self.one_by_one:
            rows = zip(outputs, logits.float().cpu().split(masks), most, strict=True)
            blocks = [self._one_by_one(output, those[:count]) for output, those, count in rows]
        else:
            self.batch.constraints.restrict(logits, ())
            best = iter(logits.argmax(-1).tolist())
            blocks = [[next(best) for _ in range(n)] for n in masks]
        return [tokens[:count] for tokens, count in zip(blocks, most, strict=True)]

    def _one_by_one(self, output: int, logits: torch.Tensor) -> list[int]:
        """The best allowed tokens of an output's block, chosen left to right. logits [masks, V] change in place."""
        known, limit, probability = [self.batch.model.start_id, *self.written[output]], self.batch.limits[output], 1.0
        first = len(known)
        for place in range(len(logits)):  # `split` would give one piece of no masks
            row = logits[place : place + 1]
            self.batch.constraints.restrict(row, [(known[:1], known[1:], limit)])
            token, chance = likeliest(row[0].numpy(), self.after, self.before[known[-1]])
            probability *= chance
            if place and probability < self.confidence:
                break
            known.append(int(token))
        return known[first:]

    def accept(self, output: int, tokens: Sequence[int], drafted: int) -> None:
        self.written[output].extend(tokens)
