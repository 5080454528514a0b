"""The loop that all drafters share. Everything that makes drafting lossless is in this module:

- A draft is verified in one forward pass over the key-value cache.
- It is accepted up to the first token that differs, which is replaced by the model's choice.
- The cache is cropped after the accepted tokens.
- Decoding stops where greedy decoding stops: at an end token, also inside an accepted block, or at the limit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from itertools import accumulate
from math import isfinite
from typing import TYPE_CHECKING

from harness.common.errors import RequestError
from harness.common.generate import NOT_FINITE
from harness.contracts import Decoded, Phases
from harness.contracts.answers import near_tie
from methods.decoding.drafting.drafter import Drafter
from methods.decoding.engine.session import Session, without
from methods.decoding.search.best import best_of_rows
from methods.decoding.search.decoder import Batch

if TYPE_CHECKING:
    import torch

FIRST_LOOK = 8  # positions whose logits are computed first: those after an early difference are never needed


@dataclass(slots=True)
class Verdict:
    """The result of verifying a draft: the accepted block (at least one token), its number of near-ties, and the
    indices of accepted tokens that were not the model's first choice."""

    block: list[int] = field(default_factory=list)
    near_ties: int = 0
    others: list[int] = field(default_factory=list)


Accepts = Callable[[int, Sequence[int], Sequence[float]], bool]


def exactly(drafted: int, ids: Sequence[int], logits: Sequence[float]) -> bool:
    """Accept a drafted token if it is the model's first choice, so that the output is greedy decoding's."""
    return drafted == ids[0]


def draft_and_verify(
    session: Session, batch: Batch, drafter: Drafter, phases: Phases, accepts: Accepts = exactly, depth: int = 2,
    look: int = FIRST_LOOK,
) -> None:  # fmt: skip
    """Fill the outputs of a batch, one per row of the session.

    accepts(drafted token, ids, logits): whether a drafted token is accepted, given the `depth` best tokens (ids and
    logits, best first). Otherwise the best token replaces it and ends the block. look: positions whose logits are
    computed at first.

    The trace gets, per iteration, the drafted tokens (none: an ordinary step), the number of accepted tokens, and the
    positions of those that were not the model's first choice. Counter `near_ties`: accepted tokens whose two top logits
    are within `near_tie`.
    """
    outputs, limits, ends = batch.outputs, batch.limits, set(batch.model.eos_ids)
    tie = near_tie(batch.model)
    for decoded in outputs:
        decoded.trace.counters["near_ties"] = 0
    active = list(range(len(outputs)))  # the output that each row of the session writes
    pending = prompts = list(session.first)
    while active:
        with phases("draft"):
            most = [limits[output] - len(outputs[output].ids) - 1 for output in active]
            proposed = zip(drafter.draft(active, most), most, strict=True)
            drafts = [_usable(draft[:count], ends, session.vocabulary) for draft, count in proposed]
        with phases("verify"):
            lengths = session.lengths
            tokens = [[*fed, *draft] for fed, draft in zip(pending, drafts, strict=True)]
            alone = not any(map(len, drafts))
            states = session.advance(tokens, last=alone)
            spans = accumulate(1 if alone else len(row) for row in tokens)
            written = [(prompts[output], outputs[output].ids, limits[output]) for output in active]
            blocks = _verdicts(session, states, list(spans), drafts, written, batch, tie, accepts, depth, look)
            finished = []
            for row, (output, verdict) in enumerate(zip(active, blocks, strict=True)):
                fed, block = len(tokens[row]) - len(drafts[row]), verdict.block
                session.lengths[row] = lengths[row] + fed + len(block) - 1  # the last accepted token is fed next
                _record(outputs[output], verdict, drafts[row])
                if block[-1] in ends or len(outputs[output].ids) == limits[output]:
                    finished.append(row)
                else:
                    drafter.accept(output, block, len(drafts[row]))
            pending = [verdict.block[-1:] for verdict in blocks]
            if finished:
                kept = without(finished, len(active))
                active, pending = [active[row] for row in kept], [pending[row] for row in kept]
                if active:
                    session.select(kept)


def _usable(draft: Sequence[int], ends: Set[int], vocabulary: int) -> Sequence[int]:
    """The draft up to and including its first end token, after which nothing can be accepted. It also stops before the
    first id unknown to the decoder, since a source may have its own vocabulary."""
    for place, token in enumerate(draft):
        if not 0 <= token < vocabulary:
            return draft[:place]
        if token in ends:
            return draft[: place + 1]
    return draft


def _verdicts(
    session: Session,
    states: torch.Tensor,
    spans: Sequence[int],
    drafts: Sequence[Sequence[int]],
    written: Sequence[tuple[Sequence[int], Sequence[int], int]],
    batch: Batch,
    tie: float,
    accepts: Accepts,
    depth: int,
    look: int,
) -> list[Verdict]:
    """The verdict on each row's draft. The states of row r are the len(drafts[r]) + 1 before spans[r]. written: per row
    its prompt, its output so far, and its limit.

    Logits are computed a few positions at a time, so a long draft that fails early costs little, and memory does not
    grow with the draft. The constraints after a draft are exact: a position counts only if all drafted tokens before it
    were accepted.
    """
    import torch

    constraints, ends = batch.constraints, set(batch.constraints.ends)
    results = [Verdict() for _ in drafts]
    unsettled = list(range(len(drafts)))
    begin = 0
    while unsettled:
        pieces = []
        for row in unsettled:
            first = spans[row] - len(drafts[row]) - 1
            pieces.append(states[first + begin : min(first + begin + look, spans[row])])
        logits = session.logits(pieces[0] if len(pieces) == 1 else torch.cat(pieces))
        constraints.restrict(
            logits,
            (
                (prompt, [*output, *drafts[row][: begin + place]], limit)
                for row, piece in zip(unsettled, pieces, strict=True)
                for prompt, output, limit in [written[row]]
                for place in range(len(piece))
            ),
        )
        best_at = best_of_rows(logits, min(depth, logits.shape[1]))
        open_rows, at = [], 0
        for row, piece in zip(unsettled, pieces, strict=True):
            verdict, draft, settled = results[row], drafts[row], False
            block = verdict.block
            for place in range(at, at + len(piece)):
                values, ids = best_at(place)
                if not isfinite(values[0]):
                    length = sum(map(len, written[row][:2])) + len(block)
                    raise RequestError(NOT_FINITE.format(batch.model.name, length))
                if len(values) > 1 and values[0] - values[1] <= tie:
                    verdict.near_ties += 1
                    if values[0] == values[1]:  # an exact tie is decided as in greedy search
                        first = int(logits[place].argmax())
                        ids = [first, *(token for token in ids if token != first)][: len(ids)]
                accepted = len(block) < len(draft) and accepts(draft[len(block)], ids, values)
                if accepted and draft[len(block)] != ids[0]:
                    verdict.others.append(len(block))
                block.append(draft[len(block)] if accepted else ids[0])
                if not accepted or block[-1] in ends:
                    settled = True
                    break
            at += len(piece)
            if not settled:
                open_rows.append(row)
        unsettled, begin, look = open_rows, begin + look, 4 * FIRST_LOOK
    return results


def _record(output: Decoded, verdict: Verdict, draft: Sequence[int]) -> None:
    """Add one iteration to an output and its trace."""
    trace = output.trace
    trace.others.extend(len(output.ids) + place for place in verdict.others)
    output.ids.extend(verdict.block)
    trace.iterations += 1
    trace.accepted.append(len(verdict.block))
    trace.drafts.append(list(draft))
    trace.counters["near_ties"] += verdict.near_ties
