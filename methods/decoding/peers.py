"""The same models through `transformers`' own `generate`: what a user would call instead."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from harness.contracts import Decoded, GenerationModel, Phases, SequenceDecoding, Trace
from harness.errors import RequestError
from harness.plan.registry import method
from methods.decoding.engines import rooms
from methods.decoding.suppression import suppressed


class _Accepted:
    """A streamer of `generate`: how many tokens each step added to the one output."""

    def __init__(self) -> None:
        self.counts: list[int] = []
        self._begun = False

    def put(self, tokens: Any) -> None:
        if self._begun:
            self.counts.append(tokens.numel())
        self._begun = True  # what is given first is the prompt

    def end(self) -> None:
        pass


@contextmanager
def _calls(module: Any) -> Iterator[list[None]]:
    """One entry for each forward call of the module's decoder (its blocks, of a causal model) made inside."""
    seen: list[None] = []
    handle = module.get_decoder().register_forward_hook(lambda *_: seen.append(None))
    try:
        yield seen
    finally:
        handle.remove()


class Peer(SequenceDecoding):
    """A call of `generate` per batch, with every constraint of the model's own generation configuration switched off
    except suppressed tokens, as in our decoders.

    `iterations` of an output are the forward calls of the decoder, counted while its batch was generated: all outputs
    of a batch have the same. `accepted`, the tokens that each call gave, is known where sentences go one by one and
    left empty elsewhere.
    """

    one_by_one = False

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Keyword arguments of `GenerationConfig` that make this peer what it is."""

    def decode(
        self, model: GenerationModel, sources: Sequence[Sequence[int]], limit: int, phases: Phases
    ) -> list[Decoded]:
        space = rooms(model, sources, limit)
        outputs = [Decoded([]) for _ in sources]
        empty = next((number for number, source in enumerate(sources) if not source), None)
        if empty is not None and model.kind == "encoder-decoder":
            raise RequestError(f"source {empty} is empty: `generate` of transformers needs at least an end token")
        groups: dict[int, list[int]] = {}  # `generate` takes one limit for a batch
        for number, room in enumerate(space):
            if room:
                groups.setdefault(number if self.one_by_one else room, []).append(number)
        with phases("generate"):
            for group in groups.values():
                accepted = _Accepted() if self.one_by_one else None
                with _calls(model.module) as calls:
                    answers = self._generate(model, [list(sources[n]) for n in group], space[group[0]], accepted)
                for number, ids in zip(group, answers, strict=True):
                    outputs[number] = Decoded(ids, Trace(len(calls), accepted.counts if accepted else []))
        return outputs

    def _generate(
        self, model: GenerationModel, sources: list[list[int]], room: int, accepted: _Accepted | None
    ) -> list[list[int]]:
        import torch
        from transformers import GenerationConfig

        causal = model.kind == "causal"
        sources = [source or [model.start_id] for source in sources] if causal else sources
        longest = max(map(len, sources))
        gaps = [[0] * (longest - len(source)) for source in sources]
        ids = [gap + source if causal else source + gap for source, gap in zip(sources, gaps, strict=True)]
        mask = [
            gap + [1] * len(source) if causal else [1] * len(source) + gap
            for source, gap in zip(sources, gaps, strict=True)
        ]
        module, end = model.module, model.eos_ids[0] if model.eos_ids else None
        never = suppressed(module)
        config = GenerationConfig(
            max_new_tokens=room,
            do_sample=False,
            eos_token_id=list(model.eos_ids) or None,
            pad_token_id=end if end is not None else 0,
            bos_token_id=model.start_id if causal else None,
            decoder_start_token_id=None if causal else model.start_id,
            suppress_tokens=never or None,
            **self.settings(),
        )
        own, module.generation_config = module.generation_config, config  # what is None here must not be filled from it
        try:
            with torch.inference_mode():
                answers = module.generate(
                    torch.tensor(ids, device=model.device),
                    attention_mask=torch.tensor(mask, device=model.device),
                    generation_config=config,
                    streamer=accepted,
                ).tolist()
        finally:
            module.generation_config = own
        return [_until_end(answer[longest if causal else 1 :], model.eos_ids, room) for answer in answers]


@method(
    "transformers-greedy", contract="sequence-decoding", baseline="greedy", summary="`generate` of transformers, greedy"
)
class TransformersGreedy(Peer):
    """`generate(num_beams=1)`."""

    def settings(self) -> dict[str, Any]:
        return {"num_beams": 1}


@method("transformers-beam", contract="sequence-decoding", baseline="beam", summary="`generate` of transformers, beams")
class TransformersBeam(Peer):
    """`generate(num_beams=beam)`."""

    def __init__(self, *, beam: int = 5, length_penalty: float = 1.0, early_stopping: bool = False) -> None:
        if beam < 1:
            raise RequestError(f"beam = {beam}: give 1 or more")
        self.beam, self.length_penalty, self.early_stopping = beam, length_penalty, early_stopping

    def settings(self) -> dict[str, Any]:
        return {
            "num_beams": self.beam,
            "length_penalty": self.length_penalty,
            "early_stopping": self.early_stopping,
        }


@method(
    "transformers-prompt-lookup",
    contract="sequence-decoding",
    baseline="greedy",
    summary="`generate` of transformers with prompt lookup",
)
class TransformersPromptLookup(Peer):
    """`generate(prompt_lookup_num_tokens=...)`, which takes one sentence at a time.

    It searches the decoder's input: for a causal model the prompt and what was generated, for an encoder-decoder model
    only what was generated, never the source. There it drafts nothing of what the source shares with the output, and a
    comparison with input-guided drafts shows what searching the source is worth; like is compared with like on causal
    models whose prompt holds the source.
    """

    one_by_one = True

    def __init__(self, *, tokens: int = 10, ngram: int = 2) -> None:
        for name, value in (("tokens", tokens), ("ngram", ngram)):
            if value < 1:
                raise RequestError(f"{name} = {value}: give 1 or more")
        self.tokens, self.ngram = tokens, ngram

    def settings(self) -> dict[str, Any]:
        return {"num_beams": 1, "prompt_lookup_num_tokens": self.tokens, "max_matching_ngram_size": self.ngram}

    def _generate(
        self, model: GenerationModel, sources: list[list[int]], room: int, accepted: _Accepted | None
    ) -> list[list[int]]:
        try:
            return super()._generate(model, sources, room, accepted)
        except IndexError as error:  # its drafts heed neither the limit nor the model's positions
            raise RequestError(
                f"prompt lookup of transformers drafted past the window of {model.name} ({model.window} tokens): "
                f"give a limit or `tokens` ({self.tokens}) that leaves it room"
            ) from error


def _until_end(ids: list[int], ends: Sequence[int], room: int) -> list[int]:
    for place, token in enumerate(ids[:room]):
        if token in ends:
            return ids[: place + 1]
    return ids[:room]
