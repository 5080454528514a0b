"""Greedy search: the most probable token, one at a time."""

from __future__ import annotations

from harness.contracts import Phases
from harness.plan.registry import method
from methods.decoding.engine.session import Session, without
from methods.decoding.search.best import check_finite
from methods.decoding.search.decoder import Batch, Decoder


@method("greedy", contract="sequence-decoding", summary="greedy search with a key-value cache", variants=("engine",))
class Greedy(Decoder):
    """o_{j+1} = argmax P(o | o_1..o_j, x). A sentence ends at the first end token or at the limit, and then leaves the
    batch."""

    def run(self, session: Session, batch: Batch, phases: Phases) -> None:
        with phases("generate"):
            _decode(session, batch)
        for decoded in batch.outputs:
            decoded.trace.iterations = len(decoded.ids)
            decoded.trace.accepted = [1] * len(decoded.ids)


def _decode(session: Session, batch: Batch) -> None:
    """Fill the outputs of a session's rows."""
    tokens = session.first
    ends = set(batch.model.eos_ids)
    prompts = list(session.first)
    active = list(range(len(batch.outputs)))  # the output that each row of the session writes
    while active:
        logits = session.logits(session.advance(tokens, last=True))
        batch.constraints.restrict(logits, ((prompts[n], batch.outputs[n].ids, batch.limits[n]) for n in active))
        chosen = logits.argmax(-1)
        following = chosen.tolist()
        check_finite(logits.gather(1, chosen[:, None])[:, 0].tolist(), batch.model.name)
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
