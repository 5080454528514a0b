"""The base class of methods that draft and verify."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from harness.common.generate import Constraints, maximum_new_tokens
from harness.contracts import GenerationModel, Phases
from harness.contracts.answers import common_prefix
from harness.contracts.metrics import Metric
from methods.decoding.drafting.drafter import Drafter
from methods.decoding.drafting.verification import draft_and_verify
from methods.decoding.engine.session import Engine, Session
from methods.decoding.search.decoder import Batch, Decoder

PIECE = 32  # places whose logits are held at once


class DraftingDecoder(Decoder):
    """The output equals that of greedy decoding for any drafter. A good drafter saves iterations.

    A block and a single step use different matrix kernels. So an output may differ from greedy decoding's at a near
    tie, where its token is within 1e-4 of the best logit (0.25 in bfloat16, `near_tie`). Any other difference is an
    error. A method with another acceptance rule overrides `run` (with `accepts`) and `gap`.
    """

    measures: ClassVar[tuple[Metric, ...]] = (
        Metric("drafted", "drafted tokens", kind="counter"),
        Metric("near_ties", better="lower", kind="counter"),
    )
    uneven: ClassVar[bool] = True

    @abstractmethod
    def drafter(self, batch: Batch, phases: Phases) -> Drafter:
        """The drafter of this batch. The time to make it belongs in the phase `draft`."""

    def run(self, session: Session, batch: Batch, phases: Phases) -> None:
        draft_and_verify(session, batch, self.drafter(batch, phases), phases)

    def gap(
        self, model: GenerationModel, source: Sequence[int], output: list[int], expected: list[int], limit: int
    ) -> float | None:
        """See `SequenceDecoding.gap`. Costs one forward pass over the output."""
        return gap_of_best(self.engine_of(model), model, source, output, expected, limit)


def gap_of_best(
    engine: Engine, model: GenerationModel, source: Sequence[int], output: list[int], expected: list[int], limit: int
) -> float:
    """The largest distance, in logits, of a token below the model's best one: over the output's tokens from where the
    two outputs part, and `expected`'s token there. One forward pass over the output. Infinite if either output ends
    where they part, or if the output stops before its limit without an end token."""
    import torch

    place = common_prefix(output, expected)
    limit = maximum_new_tokens(model, source, limit)
    if place in (len(output), len(expected)) or (len(output) < limit and output[-1] not in model.eos_ids):
        return math.inf
    constraints, gaps = Constraints.of(model.module, model.eos_ids), list[torch.Tensor]()
    with torch.inference_mode():
        session = engine.start([source], [len(output)])
        prompt = session.first[0]
        states = session.advance([[*prompt, *output[:place]]], last=True)
        if place + 1 < len(output):
            states = torch.cat([states, session.advance([output[place:-1]])])
        for piece in torch.arange(len(states)).split(PIECE):  # a vocabulary has up to 262,144 logits a place
            logits, first = session.logits(states[piece]), place + int(piece[0])
            places = range(first, first + len(piece))
            constraints.restrict(logits, ((prompt, output[:n], limit) for n in places))
            best = logits.max(1).values
            gaps += [row_best - row[output[n]] for n, row, row_best in zip(places, logits, best, strict=True)]
            if first == place:
                gaps.append(best[0] - logits[0, expected[place]])
    return float(torch.stack(gaps).max())  # NaN if one is
