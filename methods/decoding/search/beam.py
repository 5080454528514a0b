"""Beam search as `transformers` defines it: scores divided by length ** length_penalty, early stopping by heuristic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from harness.contracts import Phases
from harness.contracts.answers import common_prefix
from harness.plan.registry import method
from methods.decoding.engine.session import Session
from methods.decoding.search.best import best, check_finite
from methods.decoding.search.decoder import Batch, Decoder

WORST = -1.0e9  # the score of a beam that does not exist


@dataclass(kw_only=True)
class BeamOptions:
    """The `beam` best prefixes are kept. A finished one scores log P / (its length) ** length_penalty.

    early_stopping: stop as soon as `beam` sentences are finished; otherwise stop when the best running prefix, at its
    current length, no longer beats the worst finished one. The rules are those of `GenerationConfig` of `transformers`.
    """

    beam: Annotated[int, Field(ge=1)] = 5
    length_penalty: float = 1.0
    early_stopping: bool = False


@method(
    "beam",
    contract="sequence-decoding",
    baseline="greedy",
    summary="beam search with a key-value cache",
    variants=("engine",),
)
class Beam(BeamOptions, Decoder):
    """Beam search over all rows of a batch at once."""

    def run(self, session: Session, batch: Batch, phases: Phases) -> None:
        ends = frozenset(batch.model.eos_ids)
        searches = [Search(self, ends, *given) for given in zip(batch.limits, session.first, strict=True)]
        with phases("generate"):
            _search(session, searches, self.beam, batch)
        for decoded, search in zip(batch.outputs, searches, strict=True):
            decoded.ids = search.best()
            decoded.trace.iterations = search.steps


@dataclass(slots=True)
class Search:
    """The beams of one sentence after its `prompt`. `running` and `finished` hold (score, tokens), best first."""

    settings: BeamOptions
    ends: frozenset[int]
    limit: int
    prompt: Sequence[int] = ()
    steps: int = 0
    running: list[tuple[float, list[int]]] = field(default_factory=list)
    finished: list[tuple[float, list[int]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.running = [(0.0 if beam == 0 else WORST, []) for beam in range(self.settings.beam)]

    @property
    def width(self) -> int:
        """Number of continuations to consider, so that `beam` remain if the best ones end."""
        return max(2, 1 + len(self.ends)) * self.settings.beam

    def best(self) -> list[int]:
        """The best finished sentence."""
        return self.finished[0][1] if self.finished else []

    def step(self, scores: Sequence[float], beams: Sequence[int], tokens: Sequence[int]) -> list[int] | None:
        """Take the best continuations, best first. Returns for each new beam the beam that it continues; None: done."""
        self.steps += 1
        beam, length = self.settings.beam, self.steps
        at_limit = length == self.limit
        going: list[tuple[float, int, int]] = []
        for rank, (score, origin, token) in enumerate(zip(scores, beams, tokens, strict=True)):
            if token in self.ends or at_limit:
                if rank < beam and not (self.settings.early_stopping and len(self.finished) == beam):
                    ids = [*self.running[origin][1], token]
                    self.finished.append((score / length**self.settings.length_penalty, ids))
            elif len(going) < beam:
                going.append((score, origin, token))
        self.finished = sorted(self.finished, key=lambda entry: -entry[0])[:beam]
        if at_limit or not going:
            return None
        if len(self.finished) == beam:
            hopeless = going[0][0] / length**self.settings.length_penalty <= self.finished[-1][0]
            if hopeless or self.settings.early_stopping:
                return None
        going += [(WORST, going[0][1], going[0][2])] * (beam - len(going))  # a vocabulary smaller than the beam
        self.running = [(score, [*self.running[origin][1], token]) for score, origin, token in going]
        return [origin for _, origin, _ in going]


def _search(session: Session, searches: list[Search], beam: int, batch: Batch) -> None:
    """Run the searches of a session's rows to their ends.

    As in `transformers`, forbidden tokens are masked after the softmax: the others keep their probability, and a forced
    token has score 0.
    """
    import torch

    prompt = list(session.lengths)
    first = True
    tokens = session.first
    while searches:
        logits = session.logits(session.advance(tokens, last=True))
        if first:
            prompt = list(session.lengths)
        # in float32 like `transformers`, for the same ties
        chances = torch.log_softmax(logits.float(), -1)
        batch.constraints.restrict(
            chances, ((s.prompt, ids, s.limit) for s in searches for _, ids in s.running[: 1 if first else beam])
        )
        chances = chances.view(len(searches), -1, logits.shape[1])
        scores = torch.tensor([[score for score, _ in s.running] for s in searches], device=logits.device)
        totals = (chances + scores[:, :, None]).flatten(1)  # in the first step all beams are one row
        chosen = [best(row, min(searches[0].width, totals.shape[1])) for row in totals]
        read = (len(search.prompt) + len(search.running[0][1]) for search in searches)
        check_finite((values[0] for values, _ in chosen), batch.model.name, read)
        vocabulary = logits.shape[1]
        order: list[int] = []
        since = min(session.lengths)
        going: list[Search] = []
        starts: list[int] = []
        for number, (search, (values, cells)) in enumerate(zip(searches, chosen, strict=True)):
            before = [ids for _, ids in search.running]
            origins = search.step(values, [c // vocabulary for c in cells], [c % vocabulary for c in cells])
            if origins is None:
                continue
            for row, origin in enumerate(origins):
                order.append(number if first else number * beam + origin)
                if origin != row and not first:
                    since = min(since, prompt[number] + common_prefix(before[row], before[origin]))
            if len(going) != number:
                since = 0  # another sentence's rows move here
            going.append(search)
            starts.append(prompt[number])
        searches, prompt = going, starts
        if searches:
            session.select(order, 0 if first else since)
            tokens = [[ids[-1]] for search in searches for _, ids in search.running]
        first = False
