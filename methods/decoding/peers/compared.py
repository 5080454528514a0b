"""The base of peers that run the same torch module as our engine and promise the outputs of greedy decoding."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from harness.contracts import GenerationModel, SequenceDecoding
from methods.decoding.drafting.decoder import gap_of_best
from methods.decoding.search.greedy import Greedy


class Compared(SequenceDecoding):
    """Gaps of its outputs are those of methods here that draft, in the logits of our engine."""

    @cached_property
    def _greedy(self) -> Greedy:
        return Greedy()

    def gap(
        self, model: GenerationModel, source: Sequence[int], output: list[int], expected: list[int], limit: int
    ) -> float | None:
        return gap_of_best(self._greedy.engine_of(model), model, source, output, expected, limit)
