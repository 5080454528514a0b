"""Greedy search: the most probable token, one at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from harness.contracts import Phases
from harness.plan.registry import method
from methods.decoding.engine.session import Session, without
from methods.decoding.search.best import check_finite
from methods.decoding.search.decoder import Batch, Decoder

if TYPE_CHECKING:
    import torch


@method("greedy", contract="sequence-decoding", summary="greedy search with a key-value cache", variants=("engine",))
class Greedy(Decoder):
    """o_{j+1} = argmax P(o | o_1..o_j, x). A sentence ends at the first end token or at the limit, and then leaves the
    batch."""

    def run(self, session: Session, batch: Batch, phases: Phases) -> None:
        prompts = list(session.first)

        def choose(states: torch.Tensor, active: Sequence[int]) -> list[int]:
            logits = session.logits(states)
            batch.constraints.restrict(logits, ((prompts[n], batch.outputs[n].ids, batch.limits[n]) for n in active))
            chosen = logits.argmax(-1)
            scores = logits.gather(1, chosen[:, None])[:, 0].tolist()
            check_finite(scores, batch.model.name, session.lengths)
            words: list[int] = chosen.tolist()
            return words

        with phases("generate"):
            decode_greedily(session, batch, choose)


def decode_greedily(session: Session, batch: Batch, choose: Callable[[torch.Tensor, Sequence[int]], list[int]]) -> None:
    """Fill the outputs of a session's rows, a token at a time.

    choose(states [rows, s] of the last tokens, the number of each row's output): the next token of each row.
    """
    tokens, ends = session.first, set(batch.model.eos_ids)
    active = list(range(len(batch.outputs)))  # the output that each row of the session writes
    while active:
        following = choose(session.advance(tokens, last=True), active)
        finished = []
        for row, (output, token) in enumerate(zip(active, following, strict=True)):
            ids = batch.outputs[output].ids
            ids.append(token)
            if token in ends or len(ids) == batch.limits[output]:
                finished.append(row)
        tokens = [[token] for token in following]
        if finished:
            kept = without(finished, len(active))
            active, tokens = [active[row] for row in kept], [tokens[row] for row in kept]
            if active:
                session.select(kept)
    for decoded in batch.outputs:
        decoded.trace.iterations = len(decoded.ids)
        decoded.trace.accepted = [1] * len(decoded.ids)
