"""Speculative decoding with drafts from an index: what reference text goes on with (Liu et al., 2024, future work), or
what prompt and output themselves went on with, where they hold as long a match."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from harness.contracts import Artifacts, GenerationModel, Phases, Streams, TrainingPairs
from harness.plan.registry import method
from methods.decoding.drafting.decoder import DraftingDecoder
from methods.decoding.drafting.drafter import Drafter
from methods.decoding.search.decoder import Batch
from methods.infinigram.engine import Engine
from methods.infinigram.indexed import index_reference, opened_reference

CONTEXT = 64  # tokens that are looked up; longer matches are as good


class Written:
    """Prompt and output so far, and where its end occurred before."""

    __slots__ = ("_agreeing", "_places", "tokens")

    def __init__(self, prompt: Sequence[int]) -> None:
        self.tokens: list[int] = []
        self._places: dict[int, list[int]] = {}
        self._agreeing: dict[int, int] = {}  # earlier place of the last token -> tokens that agree up to it
        self.extend(prompt)

    def extend(self, tokens: Sequence[int]) -> None:
        """A token costs as many steps as it has occurred before."""
        for token in tokens:
            before, places = self._agreeing, self._places.setdefault(token, [])
            self._agreeing = {place: before.get(place - 1, 0) + 1 for place in places}
            places.append(len(self.tokens))
            self.tokens.append(token)

    def longest(self) -> tuple[int, int]:
        """Tokens of the longest suffix that occurred before, and the place behind where it did last; 0, 0 for none."""
        length, place = max(((length, place + 1) for place, length in self._agreeing.items()), default=(0, 0))
        return length, place

    def behind(self, place: int, most: int) -> list[int]:
        """The tokens from a place on; from the end they go on at this place, as text that repeats itself does."""
        period = self.tokens[place:]
        return [period[number % len(period)] for number in range(most)]


class InfinigramDrafter(Drafter):
    """Drafts what follows the longest suffix of prompt and output in the reference text or, with `own`, earlier in
    prompt and output themselves; of two matches of one length the latter counts."""

    def __init__(
        self, engine: Engine, prompts: Sequence[Sequence[int]], block: int, least: int, share: float, own: bool
    ) -> None:
        self.engine, self.block, self.least, self.share, self.own = engine, block, least, share, own
        self.written = [Written(prompt) for prompt in prompts]

    def draft(self, outputs: Sequence[int], most: Sequence[int]) -> list[Sequence[int]]:
        return [
            self._draft(self.written[n], min(count, self.block)) if count > 0 else ()
            for n, count in zip(outputs, most, strict=True)
        ]

    def _draft(self, written: Written, most: int) -> Sequence[int]:
        length, place = written.longest() if self.own else (0, 0)
        if length >= self.least and length > 0:
            longer = self.engine.continuation(written.tokens[-CONTEXT:], most, length + 1, self.share)
            return longer or written.behind(place, most)
        return self.engine.continuation(written.tokens[-CONTEXT:], most, self.least, self.share)

    def accept(self, output: int, tokens: Sequence[int], drafted: int) -> None:
        self.written[output].extend(tokens)


@method(
    "infinigram-speculative",
    contract="sequence-decoding",
    baseline="greedy",
    needs=("causal", "reference-text"),
    summary="drafts of what reference text goes on with, from a suffix array, verified at once",
)
class InfinigramSpeculative(DraftingDecoder):
    """Output = greedy decoding's. block: longest draft, in tokens. least: tokens of the shortest match that is drafted
    from. share: a draft ends where its next token has less than this share of what follows in the reference text. own:
    whether prompt and output are drafted from as well."""

    block: Annotated[int, Field(ge=1)] = 8
    least: Annotated[int, Field(ge=0)] = 2
    share: Annotated[float, Field(ge=0, le=1)] = 0.3
    own: bool = True

    def fit(self, model: GenerationModel, reference: Streams, training: TrainingPairs, artifacts: Artifacts) -> None:
        index_reference(artifacts, reference, model.vocabulary_size, _tokenizer(model))

    def open(self, subject: GenerationModel, artifacts: Artifacts) -> None:
        self._index = opened_reference(artifacts, _tokenizer(subject))

    def counters(self) -> dict[str, float]:
        return {"index_bytes": self._index.bytes}

    def drafter(self, batch: Batch, phases: Phases) -> Drafter:
        with phases("draft"):
            return InfinigramDrafter(self._index, batch.encoded.sources, self.block, self.least, self.share, self.own)


def _tokenizer(model: GenerationModel) -> str | None:
    return model.language_model.tokenizer_hash if model.language_model is not None else None
