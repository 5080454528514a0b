"""Input-guided Aggressive Decoding (Ge et al., 2022, section 3.1, Algorithm 1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from harness.contracts import Decoded, GenerationModel, Phases
from harness.errors import RequestError
from harness.registry import method
from methods.aggressive.suffix import SuffixMatch
from methods.aggressive.verification import Drafter, decode
from methods.decoding.engines import Decoder, rooms

GUESS = 8  # tokens drafted where the place in the source is a guess


class InputGuided(Drafter):
    """Drafts the source's continuation after the one place where the output's end occurs in it.

    aligned: where no suffix is unique, guess the place nearest to where the last draft left the source (a replaced
    token is followed by what followed the token it replaces), unless not one token of the last draft was accepted.
    """

    def __init__(self, sources: Sequence[Sequence[int]], framed: bool, block: int, aligned: bool) -> None:
        self.matches = [SuffixMatch(source, framed) for source in sources]
        self.block = block
        self.aligned = aligned
        self.expected: list[int | None] = [None] * len(sources)  # place of the source where the output now is
        self.failed = [False] * len(sources)  # nothing of the last draft was accepted

    def draft(self, outputs: Sequence[int], most: Sequence[int]) -> list[Sequence[int]]:
        return [self._draft(output, room) for output, room in zip(outputs, most, strict=True)]

    def _draft(self, output: int, room: int) -> Sequence[int]:
        match = self.matches[output]
        room = min(room, self.block) if self.block else room
        place, expected = match.unique(), self.expected[output]
        if place is None and self.aligned and expected is not None and not self.failed[output]:
            place, room = match.nearest(expected), min(room, GUESS)
        if place is None:
            return ()
        self.expected[output] = place
        return match.source[place : place + room]

    def accept(self, output: int, tokens: Sequence[int], drafted: int) -> None:
        self.matches[output].extend(tokens)
        expected = self.expected[output]
        if expected is not None:
            self.expected[output] = expected + len(tokens)
        if drafted:
            self.failed[output] = len(tokens) == 1


@method(
    "iad", contract="sequence-decoding", baseline="greedy", summary="drafts copied from the source, verified at once"
)
class Iad(Decoder):
    """Output = greedy decoding's, in fewer iterations where output and source are alike.

    For an encoder-decoder model the source is framed by a sentinel that equals the decoder's start token, so that the
    first step drafts the whole source. For a causal model the source is the prompt, the first token an ordinary step.
    block: draft at most this many tokens at a time. 0: all that follows in the source, as in Algorithm 1; None: 0 for
    encoder-decoder models and 32 for causal ones, whose prompts are much longer than what they share with the output.
    resume: where to draft from. `unique`: only after a suffix that occurs once in the source, as in Algorithm 1;
    `aligned`: also from the likeliest place (see `InputGuided`), which the paper does not do. Both are lossless.
    """

    def __init__(self, *, block: int | None = None, resume: Literal["unique", "aligned"] = "unique") -> None:
        if block is not None and block < 0:
            raise RequestError(f"block = {block}: give 0 (as much as the source has) or more")
        self.block = block
        self.resume = resume

    def decode(
        self, model: GenerationModel, sources: Sequence[Sequence[int]], limit: int, phases: Phases
    ) -> list[Decoded]:
        import torch

        engine = self.engine(model)
        space = rooms(model, sources, limit)
        framed = model.kind == "encoder-decoder"
        block = self.block if self.block is not None else 0 if framed else 32
        outputs = [Decoded([]) for _ in sources]
        batch = [number for number, room in enumerate(space) if room]
        with torch.inference_mode():
            for group in [batch] if engine.ragged else [[number] for number in batch]:
                if group:
                    chosen = [sources[number] for number in group]
                    with phases("encode"):
                        session = engine.start(chosen, [space[number] for number in group])
                    decode(
                        session,
                        [outputs[number] for number in group],
                        [space[number] for number in group],
                        set(model.eos_ids),
                        InputGuided(chosen, framed, block, self.resume == "aligned"),
                        phases,
                    )
        return outputs
