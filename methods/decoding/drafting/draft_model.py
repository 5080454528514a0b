"""Speculative decoding with a smaller model that drafts (Leviathan et al., 2023; Chen et al., 2023), for greedy
decoding."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Annotated

from pydantic import Field

from harness.common.errors import RequestError
from harness.contracts import Decoded, GenerationModel, Phases
from harness.contracts.answers import common_prefix
from harness.plan.registry import method
from methods.decoding.drafting.decoder import DraftingDecoder
from methods.decoding.drafting.drafter import Drafter
from methods.decoding.engine.engines import Numbers, checked_limits, shared_engine
from methods.decoding.engine.session import Engine
from methods.decoding.search.decoder import Batch


class ModelDrafter(Drafter):
    """Drafts what a model writes greedily, at most `tokens` tokens, up to an end token. Each output has a session of
    its own, so a batch is drafted row by row."""

    def __init__(
        self, engine: Engine, sources: Sequence[Sequence[int]], limits: Sequence[int], ends: Set[int], tokens: int
    ) -> None:
        self.ends, self.tokens = ends, tokens
        self.sessions = [engine.start([source], [limit]) for source, limit in zip(sources, limits, strict=True)]
        self.pending = [list(session.first[0]) for session in self.sessions]  # tokens that the session has not read
        self.read: list[Sequence[int]] = [()] * len(self.sessions)  # of the last draft, the tokens that it has

    def draft(self, outputs: Sequence[int], most: Sequence[int]) -> list[Sequence[int]]:
        return [
            self._draft(output, min(count, self.tokens)) if count > 0 else ()
            for output, count in zip(outputs, most, strict=True)
        ]

    def _draft(self, output: int, most: int) -> Sequence[int]:
        session, drafted = self.sessions[output], list[int]()
        while len(drafted) < most and not (drafted and drafted[-1] in self.ends):
            states = session.advance([drafted[-1:] or self.pending[output]], last=True)
            drafted.append(int(session.logits(states).argmax()))
        self.pending[output], self.read[output] = [], drafted[:-1]
        return drafted

    def accept(self, output: int, tokens: Sequence[int], drafted: int) -> None:
        session, read = self.sessions[output], self.read[output]
        kept = common_prefix(read, tokens)
        session.lengths[0] -= len(read) - kept
        self.pending[output], self.read[output] = [*self.pending[output], *tokens[kept:]], ()


@method(
    "draft-model",
    contract="sequence-decoding",
    baseline="greedy",
    summary="drafts of a smaller model, verified at once",
    variants=("engine", "drafts"),
)
class DraftModel(DraftingDecoder):
    """The output equals that of greedy decoding. The task provides the smaller model (`task.assistant`), which has the
    same tokens.

    tokens: longest draft. drafts: `int8` rounds the smaller model's weights to 8 bits, which changes drafts and not
    outputs.
    """

    tokens: Annotated[int, Field(ge=1)] = 4
    drafts: Numbers = "float32"

    def drafter(self, batch: Batch, phases: Phases) -> Drafter:
        with phases("draft"):
            small, sources = assistant_of(batch.model), batch.encoded.sources
            limits, _ = checked_limits(small, sources, max(batch.limits))
            if any(given < wanted for given, wanted in zip(limits, batch.limits, strict=True)):
                raise RequestError(
                    f"{small.name}, which drafts, takes fewer tokens than {batch.model.name} is asked for (its window "
                    f"has {small.window}): lower the limit"
                )
            self._engine = shared_engine(small, self.drafts)
            return ModelDrafter(self._engine, sources, batch.limits, set(batch.model.eos_ids), self.tokens)

    def read(self, engine: Engine, outputs: Sequence[Decoded]) -> float | None:
        """Bytes of both models' weights."""
        verifying, drafting = super().read(engine, outputs), self._engine.weights
        if verifying is None or drafting is None:
            return None
        passes = sum(len(draft) for output in outputs for draft in output.trace.drafts)
        return verifying + drafting.once * len(outputs) + drafting.each_pass * passes


def assistant_of(model: GenerationModel) -> GenerationModel:
    """The model that drafts for another. Raises `RequestError` if there is none, or it has other tokens."""
    if model.assistant is None:
        raise RequestError(f"no model drafts for {model.name}: name one by --set task.assistant=...")
    if model.assistant.vocabulary_size != model.vocabulary_size:
        raise RequestError(
            f"{model.assistant.name} has {model.assistant.vocabulary_size} tokens and {model.name} has "
            f"{model.vocabulary_size}: give an assistant whose embedding has as many"
        )
    return model.assistant
