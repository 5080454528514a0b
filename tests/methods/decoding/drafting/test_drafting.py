"""Draft and verify, with drafters that propose what they are told."""

from __future__ import annotations

import random

import pytest
import torch

from harness.common.phases import NoPhases
from methods.decoding.drafting.decoder import DraftingDecoder
from methods.decoding.drafting.drafter import Drafter
from methods.decoding.drafting.verification import draft_and_verify
from methods.decoding.search.greedy import Greedy


class Oracle(Drafter):
    """Drafts what it is told, end tokens in the middle included."""

    def __init__(self, outputs):
        self.outputs, self.grown = outputs, [0] * len(outputs)

    def draft(self, outputs, most):
        return [self.outputs[o][self.grown[o] : self.grown[o] + m] for o, m in zip(outputs, most, strict=True)]

    def accept(self, output, tokens, drafted):
        self.grown[output] += len(tokens)


class Guesser(Drafter):
    """Drafts ids at random, those outside of the vocabulary included, and more than asked for. Remembers by
    output what was asked for."""

    def __init__(self, seed):
        self.chosen, self.drafts = random.Random(seed), {}

    def draft(self, outputs, most):
        made = [[self.chosen.randrange(-1, 50) for _ in range(self.chosen.randrange(20))] for _ in most]
        for output, draft, count in zip(outputs, made, most, strict=True):
            self.drafts.setdefault(output, []).append(draft[:count])
        return made

    def accept(self, output, tokens, drafted):
        pass


class Drafting(DraftingDecoder):
    """Any drafter by any rule."""

    def __init__(self, drafter, **rule):
        super().__init__()
        self.given, self.rule = drafter, rule

    def drafter(self, batch, phases):
        return self.given

    def run(self, session, batch, phases):
        draft_and_verify(session, batch, self.drafter(batch, phases), phases, **self.rule)


def decode(method, model, sources, limit):
    return method.decode(model, sources, limit, NoPhases())


@pytest.mark.parametrize("kind", ["marian", "gpt2"])
def test_any_drafter_ends_where_greedy_search_ends(tiny, kind):
    """Perfect drafts that run on behind the end: one iteration, nothing behind the end token is kept."""
    for seed in range(6):
        model = tiny.make(kind, seed, ending=3.0)
        sources = [[5, 6, 7], [8, 9], [10]]
        greedy = [d.ids for d in decode(Greedy(), model, sources, 10)]
        outputs = decode(Drafting(Oracle([[*ids, 11, 12] for ids in greedy])), model, sources, 10)
        assert [o.ids for o in outputs] == greedy
        assert [o.trace.iterations for o in outputs] == [1] * 3


@pytest.mark.parametrize("kind", ["marian", "bart", "gpt2"])
@pytest.mark.parametrize("seed", range(5))
def test_the_output_is_greedy_search_whatever_is_drafted_and_the_trace_keeps_what_was(tiny, kind, seed):
    model, sources = tiny.make(kind, seed), [[5, 6, 7], [8, 9], [10]]
    guesser = Guesser(seed)
    outputs = decode(Drafting(guesser), model, sources, 14)
    assert [o.ids for o in outputs] == [d.ids for d in decode(Greedy(), model, sources, 14)]
    for number, output in enumerate(outputs):
        trace, at = output.trace, 0
        assert trace.iterations == len(trace.drafts) == len(trace.accepted)
        for draft, proposed, accepted in zip(trace.drafts, guesser.drafts[number], trace.accepted, strict=True):
            unusable = [place for place, token in enumerate(proposed) if not 0 <= token < tiny.VOCABULARY]
            ends = [place + 1 for place, token in enumerate(proposed) if token in model.eos_ids]
            assert draft == proposed[: min([*unusable, *ends, len(proposed)])]
            assert draft[: accepted - 1] == output.ids[at : at + accepted - 1]
            at += accepted


def test_a_wider_rule_accepts_what_is_not_the_first_choice(tiny):
    model, drafter = tiny.make("marian", 0, ending=0.0), Oracle([[20, 21, 22, 23, 24, 25, 26, 27]])
    method = Drafting(drafter, accepts=lambda drafted, ids, logits: True)
    [output] = decode(method, model, [[5, 6]], 8)
    assert output.ids[:7] == [20, 21, 22, 23, 24, 25, 26]
    assert output.trace.iterations == 1


def test_an_end_token_is_offered_to_a_wider_rule_and_ends_the_output(tiny):
    model, offered = tiny.make("marian", 0, ending=0.0), []

    def any_token(drafted, ids, logits):
        offered.append(drafted)
        return True

    [output] = decode(Drafting(Oracle([[20, 21, 0, 22]]), accepts=any_token), model, [[5, 6]], 8)
    assert output.ids == offered == [20, 21, 0]


def test_exact_ties_lose_no_candidate_and_fall_as_for_greedy_search(tiny):
    model, seen = tiny.twins(3, 0.0, torch.float64), []
    source = [9, 8, 7, 30, 31, 33, 12, 2]

    def first_choice(drafted, ids, logits):
        seen.append(ids)
        return drafted == ids[0]

    [output] = decode(Drafting(Oracle([source]), accepts=first_choice, depth=3), model, [source], 20)
    assert len(seen) > 3 and all(len(set(ids)) == 3 for ids in seen)
    assert output.ids == decode(Greedy(), model, [source], 20)[0].ids
    assert output.trace.counters["near_ties"] > 3
