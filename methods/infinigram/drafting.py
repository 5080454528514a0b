"""Speculative decoding with drafts from an index: what reference text goes on with (Liu et al., 2024, future work)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field

from harness.contracts import Artifacts, GenerationModel, Phases
from harness.plan.registry import method
from methods.decoding.decoder import Batch
from methods.decoding.drafting.decoder import DraftingDecoder
from methods.decoding.drafting.drafter import Drafter
from methods.infinigram.engine import Engine
from methods.infinigram.indexed import index_reference, opened_reference

if TYPE_CHECKING:
    from numpy.typing import NDArray

CONTEXT = 64  # tokens that are looked up; longer matches are as good


class InfinigramDrafter(Drafter):
    """Drafts what follows the longest suffix of prompt and output in the reference text."""

    def __init__(self, engine: Engine, prompts: Sequence[Sequence[int]], block: int, least: int, share: float) -> None:
        self.engine, self.block, self.least, self.share = engine, block, least, share
        self.written = [list(prompt) for prompt in prompts]

    def draft(self, outputs: Sequence[int], most: Sequence[int]) -> list[Sequence[int]]:
        return [
            self.engine.continuation(self.written[n][-CONTEXT:], min(count, self.block), self.least, self.share)
            if count > 0 else ()
            for n, count in zip(outputs, most, strict=True)
        ]  # fmt: skip

    def accept(self, output: int, tokens: Sequence[int], drafted: int) -> None:
        self.written[output].extend(tokens)


@method(
    "infinigram-speculative",
    contract="sequence-decoding",
    baseline="greedy",
    needs=("causal", "reference-text"),
    summary="drafts of what reference text goes on with, from a suffix array, verified at once",
)
@dataclass(kw_only=True)
class InfinigramSpeculative(DraftingDecoder):
    """Output = greedy decoding's. block: longest draft, in tokens. least: tokens of the shortest match that is drafted
    from. share: a draft ends where its next token has less than this share of what follows in the reference text."""

    block: Annotated[int, Field(ge=1)] = 8
    least: Annotated[int, Field(ge=0)] = 2
    share: Annotated[float, Field(ge=0, le=1)] = 0.3

    def fit(
        self,
        model: GenerationModel,
        reference: Sequence[NDArray[np.int64]],
        training: Sequence[tuple[list[int], list[int]]],
        artifacts: Artifacts,
    ) -> None:
        index_reference(artifacts, reference, model.vocabulary_size, _tokenizer(model))

    def open(self, subject: GenerationModel, artifacts: Artifacts) -> None:
        self._index = opened_reference(artifacts, _tokenizer(subject))

    def counters(self) -> dict[str, float]:
        return {"index_bytes": self._index.bytes}

    def drafter(self, batch: Batch, phases: Phases) -> Drafter:
        with phases("draft"):
            return InfinigramDrafter(self._index, batch.encoded.sources, self.block, self.least, self.share)


def _tokenizer(model: GenerationModel) -> str | None:
    return model.language_model.tokenizer_hash if model.language_model is not None else None
