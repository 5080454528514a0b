"""The same models through `generate` of `transformers`, which a user would call instead."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, ClassVar

from pydantic import Field

from harness.common.errors import RequestError, reason
from harness.common.generate import generate
from harness.contracts import Decoded, GenerationModel, Phases, Trace
from harness.plan.registry import method
from methods.decoding.drafting.draft_model import assistant_of
from methods.decoding.engine.engines import checked_limits
from methods.decoding.peers.compared import Compared
from methods.decoding.search.beam import BeamOptions


class _Accepted:
    """A streamer of `generate` that counts the tokens of each step."""

    def __init__(self) -> None:
        self.counts: list[int] = []
        self._begun = False

    def put(self, tokens: Any) -> None:
        if self._begun:
            self.counts.append(tokens.numel())
        self._begun = True  # the first call gives the prompt

    def end(self) -> None:
        pass


@contextmanager
def _calls(module: Any) -> Iterator[list[None]]:
    """A list with one entry per forward call of the module's decoder (of a causal model: its blocks) in the context."""
    seen: list[None] = []
    handle = module.get_decoder().register_forward_hook(lambda *_: seen.append(None))
    try:
        yield seen
    finally:
        handle.remove()


class Peer(Compared):
    """A call of `generate` per batch, with the constraints of the model's generation configuration that the decoders
    here honour (`Constraints`).

    `iterations` of an output: forward calls of the decoder for its batch, the same for all outputs of the batch.
    `accepted`: the tokens of each call if sentences are generated one by one, else empty.
    """

    one_by_one: ClassVar[bool] = False

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Keyword arguments of `GenerationConfig` that make this peer what it is."""

    def decode(
        self, model: GenerationModel, sources: Sequence[Sequence[int]], limit: int, phases: Phases
    ) -> list[Decoded]:
        limits, constraints = checked_limits(model, sources, limit)
        outputs = [Decoded([]) for _ in sources]
        empty = next((number for number, source in enumerate(sources) if not source), None)
        if empty is not None and model.kind == "encoder-decoder":
            raise RequestError(f"source {empty} is empty: `generate` of transformers needs at least an end token")
        # `generate` takes one limit for a batch, and constraints count a prompt's padding
        padded = model.kind == "causal" and constraints.by_position
        groups: dict[tuple[int, int], list[int]] = {}
        for number, most in enumerate(limits):
            if most:
                alike = (number, 0) if self.one_by_one else (most, len(sources[number]) if padded else 0)
                groups.setdefault(alike, []).append(number)
        with phases("generate"):
            for group in groups.values():
                accepted = _Accepted() if self.one_by_one else None
                with _calls(model.module) as calls:
                    answers = self._generate(model, [sources[n] for n in group], limits[group[0]], accepted)
                for number, ids in zip(group, answers, strict=True):
                    outputs[number] = Decoded(ids, Trace(len(calls), accepted.counts if accepted else []))
        return outputs

    def assistant(self, model: GenerationModel) -> Any:
        """The module that drafts, if any."""
        return None

    def _generate(
        self, model: GenerationModel, sources: list[Sequence[int]], limit: int, accepted: _Accepted | None
    ) -> list[list[int]]:
        try:
            assistant = self.assistant(model)
            return generate(model, sources, limit, streamer=accepted, assistant=assistant, **self.settings())
        except (LookupError, TypeError, ValueError) as error:  # such as a T5 with more layers in its decoder
            kind = model.module.config.model_type
            raise RequestError(
                f"`generate` of transformers fails on {model.name}, a model of type {kind!r}: "
                f"{type(error).__name__}: {reason(error)}"
            ) from error

    def gap(
        self, model: GenerationModel, source: Sequence[int], output: list[int], expected: list[int], limit: int
    ) -> float | None:
        """None for beams."""
        return None if self.settings()["num_beams"] > 1 else super().gap(model, source, output, expected, limit)


@method(
    "transformers-greedy", contract="sequence-decoding", baseline="greedy", summary="`generate` of transformers, greedy"
)
class TransformersGreedy(Peer):
    """`generate(num_beams=1)`."""

    def settings(self) -> dict[str, Any]:
        return {"num_beams": 1}


@method("transformers-beam", contract="sequence-decoding", baseline="beam", summary="`generate` of transformers, beams")
class TransformersBeam(BeamOptions, Peer):
    """`generate(num_beams=beam)`."""

    def settings(self) -> dict[str, Any]:
        return {"num_beams": self.beam, "length_penalty": self.length_penalty, "early_stopping": self.early_stopping}


@method(
    "transformers-prompt-lookup",
    contract="sequence-decoding",
    baseline="greedy",
    summary="`generate` of transformers with prompt lookup",
)
class TransformersPromptLookup(Peer):
    """`generate(prompt_lookup_num_tokens=...)`, which takes one sentence at a time.

    It searches the decoder's input. For a causal model this is the prompt, which holds the source, and the output:
    input-guided drafts search the same text. For an encoder-decoder model it is only the output, so a comparison with
    input-guided drafts shows the value of searching the source.
    """

    tokens: Annotated[int, Field(ge=1)] = 10
    ngram: Annotated[int, Field(ge=1)] = 2
    one_by_one: ClassVar[bool] = True

    def settings(self) -> dict[str, Any]:
        return {"num_beams": 1, "prompt_lookup_num_tokens": self.tokens, "max_matching_ngram_size": self.ngram}

    def _generate(
        self, model: GenerationModel, sources: list[Sequence[int]], limit: int, accepted: _Accepted | None
    ) -> list[list[int]]:
        try:
            return super()._generate(model, sources, limit, accepted)
        except RequestError as error:
            if not isinstance(error.__cause__, IndexError):
                raise
            raise RequestError(  # its drafts ignore the limit and the model's window
                f"prompt lookup of transformers drafted past the window of {model.name} ({model.window} tokens): "
                f"give a smaller limit or fewer `tokens` (now {self.tokens})"
            ) from error


@method(
    "transformers-source-lookup",
    contract="sequence-decoding",
    baseline="greedy",
    summary="`generate` of transformers with drafts looked up in the source",
)
class TransformersSourceLookup(TransformersPromptLookup):
    """Prompt lookup in the loop of transformers, but in the source: for an encoder-decoder model the encoder's input.

    transformers does not offer this, but a reader of Ge et al. (2022) can add it in twenty lines. It shows what the
    loop of transformers reaches with input-guided drafts. tokens: longest draft. ngram: longest suffix of the output
    that is searched; the first occurrence counts. An encoder-decoder's first draft is the beginning of the source.
    """

    tokens: Annotated[int, Field(ge=1)] = 64

    def _generate(
        self, model: GenerationModel, sources: list[Sequence[int]], limit: int, accepted: _Accepted | None
    ) -> list[list[int]]:
        from methods.decoding.peers.lookup import SourceCandidates

        def candidates(generation_config: Any, **_: Any) -> SourceCandidates:
            longest, framed = generation_config.max_length, model.kind == "encoder-decoder"
            return SourceCandidates(list(sources[0]), model.eos_ids, longest, self.tokens, self.ngram, framed)

        module = model.module
        module._get_candidate_generator = candidates  # shadows the class's own for this call
        try:
            return super()._generate(model, sources, limit, accepted)
        finally:
            del module._get_candidate_generator


@method(
    "transformers-assisted",
    contract="sequence-decoding",
    baseline="greedy",
    summary="`generate` of transformers with a smaller model that drafts",
)
class TransformersAssisted(Peer):
    """`generate(assistant_model=...)`, assisted decoding (Leviathan et al., 2023), one sentence at a time. The task
    provides the assistant. tokens: longest draft, `num_assistant_tokens`; the assistant stops earlier if it is not
    confident.
    """

    tokens: Annotated[int, Field(ge=1)] = 20
    one_by_one: ClassVar[bool] = True

    def settings(self) -> dict[str, Any]:
        return {"num_beams": 1}

    def assistant(self, model: GenerationModel) -> Any:
        module = assistant_of(model).module
        module.generation_config.num_assistant_tokens = self.tokens
        return module
