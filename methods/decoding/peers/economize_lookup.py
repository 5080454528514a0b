"""Prompt lookup for causal models by economize, a library of such techniques that a user could install instead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from harness.common.errors import RequestError, reason
from harness.contracts import Decoded, GenerationModel, Phases, Trace
from harness.plan.registry import method
from methods.decoding.engine.engines import checked_limits
from methods.decoding.peers.compared import Compared
from methods.packages import package


@method(
    "economize-lookup",
    contract="sequence-decoding",
    baseline="greedy",
    summary="prompt lookup by economize, causal models only",
)
class EconomizeLookup(Compared):
    """`economize.apply(model, LookupConfig(...)).decode_batch`. A draft is the continuation of an earlier occurrence of
    the last tokens in prompt and output; economize's own loop verifies it.

    tokens: longest draft. ngram: longest match.
    """

    tokens: Annotated[int, Field(ge=1)] = 10
    ngram: Annotated[int, Field(ge=1)] = 3

    def __post_init__(self) -> None:
        self._ready: tuple[GenerationModel, Any] | None = None

    def decode(
        self, model: GenerationModel, sources: Sequence[Sequence[int]], limit: int, phases: Phases
    ) -> list[Decoded]:
        import torch

        if model.kind != "causal":
            raise RequestError(f"economize decodes causal models, and {model.name} is an encoder-decoder")
        limits, constraints = checked_limits(model, sources, limit)
        if asked := [name for name, value in constraints.settings().items() if value is not None]:
            raise RequestError(
                f"the generation configuration of {model.name} asks for {', '.join(asked)}, which economize does not "
                "know: leave this peer out"
            )
        outputs = [Decoded([]) for _ in sources]
        numbers = [number for number, most in enumerate(limits) if most]
        if not numbers:
            return outputs
        prompts = [torch.tensor(list(sources[n]) or [model.start_id], device=model.device) for n in numbers]
        with phases("generate"):
            results = self._applied(model).decode_batch(prompts, [limits[n] for n in numbers], stop=list(model.eos_ids))
        for number, result in zip(numbers, results, strict=True):
            calls = int(result.cost_summary()["exact_calls"])
            outputs[number] = Decoded(result.tokens.tolist(), Trace(iterations=calls))
        return outputs

    def _applied(self, model: GenerationModel) -> Any:
        """The model wrapped in economize's loop, made on first use."""
        if self._ready is None or self._ready[0] is not model:
            economize, lookup = (package(name, "economize") for name in ("economize", "economize.techniques.lookup"))
            try:
                made = economize.apply(
                    model.module, lookup.LookupConfig(max_ngram=self.ngram),
                    decoding=economize.DecodeConfig(cycle_length=self.tokens + 1),
                )  # fmt: skip
            except economize.UnsupportedModelError as error:
                raise RequestError(
                    f"economize does not know {model.name}: {reason(error)}; leave this peer out"
                ) from error
            self._ready = model, made
        return self._ready[1]
