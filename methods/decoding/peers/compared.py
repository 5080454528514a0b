"""The base of peers that run the same torch module as our engine and promise the outputs of greedy decoding."""

from __future__ import annotations

from collections.abc import Sequence

from harness.contracts import GenerationModel, SequenceDecoding
from methods.decoding.drafting.decoder import gap_of_best
from methods.decoding.engine.engines import shared_engine


class Compared(SequenceDecoding):
    """Its `gap` is computed as for the drafting methods here, from our engine's logits."""

    def gap(
        self, model: GenerationModel, source: Sequence[int], output: list[int], expected: list[int], limit: int
    ) -> float | None:
        return gap_of_best(shared_engine(model), model, source, output, expected, limit)
