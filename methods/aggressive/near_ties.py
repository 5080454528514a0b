"""Checks float32 runs: where an output differs from greedy search's, how close were the two best tokens there?

In float32 a block and a single step go through different matrix kernels. An output may differ only where the two top
logits lie within `verification.NEAR_TIE` of each other; anything wider is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from methods.decoding.session import Engine


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place at which two outputs of one source differ, and the gap of the two top logits there."""

    place: int
    gap: float


def first_difference(
    engine: Engine, source: Sequence[int], output: Sequence[int], greedy: Sequence[int]
) -> Difference | None:
    """None when the outputs, both without start token, are the same. Costs one forward pass over what they share."""
    import torch

    if list(output) == list(greedy):
        return None
    pairs = zip(output, greedy, strict=False)
    place = next((n for n, (ours, theirs) in enumerate(pairs) if ours != theirs), min(len(output), len(greedy)))
    with torch.inference_mode():
        session = engine.start([source], [place + 1])
        logits = session.logits(session.advance([[*session.first[0], *greedy[:place]]], last=True))
        best = logits.topk(2).values[0]
    return Difference(place, float(best[0] - best[1]))
