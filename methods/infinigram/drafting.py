"""Speculative decoding with drafts from an index: continuations in the reference text (Liu et al., 2024, future work),
or in prompt and output themselves if they hold a match at least as long."""

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

CONTEXT = 64  # tokens that are searched; longer matches would not be better


class Written:
    """Prompt and output so far, and the earlier occurrences of their last tokens."""

    __slots__ = ("_agreeing", "_places", "tokens")

    def __init__(self, prompt: Sequence[int]) -> None:
        self.tokens: list[int] = []
        self._places: dict[int, list[int]] = {}
        self._agreeing: dict[int, int] = {}  # earlier position of the last token -> length of the common suffix
        self.extend(prompt)

    def extend(self, tokens: Sequence[int]) -> None:
        """Append tokens. Each takes as many steps as it has earlier occurrences."""
        for token in tokens:
            before, places = self._agreeing, self._places.setdefault(token, [])
            self._agreeing = {place: before.get(place - 1, 0) + 1 for place in places}
            places.append(len(self.tokens))
            self.tokens.append(token)

    def longest(self) -> tuple[int, int]:
        """(length of the longest suffix that occurred before, position after its last occurrence); (0, 0) for none."""
        length, place = max(((length, place + 1) for place, length in self._agreeing.items()), default=(0, 0))
        return length, place

    def behind(self, place: int, most: int) -> list[int]:
        """`most` tokens from a position on. At the end they start again there, as in text that repeats itself."""
        period = self.tokens[place:]
        return [period[number % len(period)] for number in range(most)]


class InfinigramDrafter(Drafter):
    """Drafts the continuation of the longest suffix of prompt and output in the reference text or, with `own`, earlier
    in prompt and output themselves. Ties: the latter."""

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
    """The output equals that of greedy decoding. block: longest draft, in tokens. least: fewest tokens of a match.
    share: a draft ends before a token with less than this share of the continuations in the reference text. own:
    whether to draft from prompt and output as well."""

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
