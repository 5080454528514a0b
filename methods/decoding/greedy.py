"""Greedy search: the most probable token, one at a time."""

from __future__ import annotations

from collections.abc import Sequence

from harness.contracts import Decoded, GenerationModel, Phases, Trace
from harness.registry import method
from methods.decoding.engines import Decoder, rooms
from methods.decoding.session import Session


@method("greedy", contract="sequence-decoding", summary="greedy search with a key-value cache")
class Greedy(Decoder):
    """o_{j+1} = argmax P(o | o_1..o_j, x). A sentence ends with the first end token or at the limit, and then leaves
    the batch, so that the rest goes on without it."""

    def decode(
        self, model: GenerationModel, sources: Sequence[Sequence[int]], limit: int, phases: Phases
    ) -> list[Decoded]:
        import torch

        engine = self.engine(model)
        space = rooms(model, sources, limit)
        outputs: list[list[int]] = [[] for _ in sources]
        with torch.inference_mode():
            # prompts of different lengths need an engine whose rows may differ
            together = engine.ragged or model.kind == "encoder-decoder" or len(set(map(len, sources))) == 1
            batch = [number for number, room in enumerate(space) if room]
            for group in [batch] if together else [[number] for number in batch]:
                if group:
                    with phases("encode"):
                        session = engine.start([sources[n] for n in group], [space[n] for n in group])
                    with phases("generate"):
                        _decode(session, [outputs[n] for n in group], [space[n] for n in group], set(model.eos_ids))
        return [Decoded(ids, Trace(iterations=len(ids), accepted=[1] * len(ids))) for ids in outputs]


def _decode(session: Session, outputs: list[list[int]], space: list[int], ends: set[int]) -> None:
    """Fill the outputs of a session's rows."""
    tokens = session.first
    active = list(range(len(outputs)))  # which output each row of the session writes
    while active:
        following = session.logits(session.advance(tokens, last=True)).argmax(-1).tolist()
        finished = []
        for row, (output, token) in enumerate(zip(active, following, strict=True)):
            outputs[output].append(token)
            if token in ends or len(outputs[output]) == space[output]:
                finished.append(row)
        tokens = [[token] for token in following]
        if finished:
            kept = without(finished, len(active))
            active, tokens = [active[row] for row in kept], [tokens[row] for row in kept]
            if active:
                session.select(kept)


def without(finished: Sequence[int], rows: int) -> list[int]:
    """The order of rows that stay, each in its place where it can, the last ones in the gaps: least is copied."""
    kept = list(range(rows))
    for row in sorted(finished, reverse=True):
        kept[row] = kept[-1]
        kept.pop()
    return kept
