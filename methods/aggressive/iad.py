"""Input-guided Aggressive Decoding (Ge et al., 2022, section 3.1, Algorithm 1)."""

from __future__ import annotations

from collections.abc import Sequence, Set
from copy import copy
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from harness.contracts import Phases
from harness.plan.registry import method
from methods.aggressive.suffix import SuffixMatch
from methods.decoding.drafting.decoder import DraftingDecoder
from methods.decoding.drafting.drafter import Drafter
from methods.decoding.search.decoder import Batch


class InputGuided(Drafter):
    """Drafts the source's continuation after the only place where the end of the output occurs in it.

    block: longest draft, in tokens; 0: up to the source's end. ends: end tokens. They are not drafted: the model writes
    them itself after an accepted block.
    """

    def __init__(self, sources: Sequence[Sequence[int]], ends: Set[int], *, framed: bool, block: int = 0) -> None:
        self.matches = [SuffixMatch(source, framed) for source in sources]
        self.ends = ends
        self.largest = [block or len(source) for source in sources]

    def draft(self, outputs: Sequence[int], most: Sequence[int]) -> list[Sequence[int]]:
        return [self._draft(output, count) for output, count in zip(outputs, most, strict=True)]

    def _draft(self, output: int, most: int) -> Sequence[int]:
        match = self.matches[output]
        place = match.unique()
        if place is None:
            return ()
        tokens = match.source[place : place + min(most, self.largest[output])]
        end = next((number for number, token in enumerate(tokens) if token in self.ends), len(tokens))
        return tokens[:end]

    def accept(self, output: int, tokens: Sequence[int], drafted: int) -> None:
        self.matches[output].extend(tokens)

    def fork(self) -> InputGuided:
        """A drafter that goes on from here by itself."""
        other = copy(self)
        other.matches = [copy(match) for match in self.matches]  # `extend` replaces what it changes
        return other


@dataclass(kw_only=True)
class IadOptions:
    """block: longest draft, in tokens.

    - 0: up to the source's end, as in Algorithm 1.
    - None: 0 for encoder-decoder models and 10 for causal ones. The prompt of a causal model is much longer than the
      text that it shares with the output.

    On a CPU a rejected token costs as much arithmetic as an accepted one, so shorter drafts may be faster.
    """

    block: Annotated[int, Field(ge=0)] | None = None

    def drafting(self, sources: Sequence[Sequence[int]], ends: Set[int], framed: bool) -> InputGuided:
        """The drafter for these sources. framed: whether the model is an encoder-decoder."""
        block = self.block if self.block is not None else 0 if framed else 10
        return InputGuided(sources, ends, framed=framed, block=block)


@method(
    "iad",
    contract="sequence-decoding",
    baseline="greedy",
    summary="drafts copied from the source, verified at once",
    variants=("engine",),
)
class Iad(IadOptions, DraftingDecoder):
    """The output equals that of greedy decoding, in fewer iterations if it resembles the source.

    For an encoder-decoder model the source is preceded by a sentinel that equals the decoder's start token, so the
    first step drafts the whole source. For a causal model the source is the prompt, and the first token is an ordinary
    step. Parameters: see `IadOptions`.
    """

    def drafter(self, batch: Batch, phases: Phases) -> Drafter:
        framed = batch.model.kind == "encoder-decoder"
        with phases("draft"):
            return self.drafting(batch.encoded.sources, set(batch.model.eos_ids), framed)
