"""Drafts of a smaller model: the outputs are greedy decoding's, whatever it drafts."""

from __future__ import annotations

import random

import pytest
import torch

from harness.common.errors import RequestError
from harness.common.phases import NoPhases
from methods.decoding.drafting.draft_model import DraftModel
from methods.decoding.engine.engines import engine_of
from methods.decoding.search.greedy import Greedy


def some_sources(seed, count=4):
    chosen = random.Random(seed)
    return [[chosen.randrange(3, 39) for _ in range(chosen.randrange(1, 12))] for _ in range(count)]


def decoded(method, model, sources, limit=12):
    return method.decode(model, sources, limit, NoPhases())


def continued(model, tokens, count, ends):
    """The next tokens by passes over the whole text, without a cache; an end token is the last."""
    written = []
    while len(written) < count and not (written and written[-1] in ends):
        logits = model.module(torch.tensor([[*tokens, *written]])).logits[0, -1]
        written.append(int(logits.argmax()))
    return written


@pytest.mark.parametrize("tokens", [1, 3, 20])
@pytest.mark.parametrize("kind", ["marian", "bart", "t5", "gpt2"])
@pytest.mark.parametrize("seed", range(3))
def test_whatever_drafts_the_outputs_are_greedy(tiny, kind, seed, tokens):
    model, sources = tiny.make(kind, seed), some_sources(seed)
    model.assistant = tiny.make(kind, seed + 10)
    wanted = [answer.ids for answer in decoded(Greedy(), model, sources)]
    answers = decoded(DraftModel(tokens=tokens), model, sources)
    assert [answer.ids for answer in answers] == wanted
    assert all(len(draft) <= tokens for answer in answers for draft in answer.trace.drafts)


@pytest.mark.parametrize("seed", range(5))
def test_each_draft_is_what_the_smaller_model_writes_after_the_output(tiny, seed):
    """Also after rejected drafts, whose keys and values must not stay in its cache."""
    model, sources = tiny.make("gpt2", seed), some_sources(seed)
    small = model.assistant = tiny.make("gpt2", seed + 10)
    rejected = 0
    with torch.inference_mode():
        for source, answer in zip(sources, decoded(DraftModel(tokens=3), model, sources, 20), strict=True):
            begin = 0
            for draft, accepted in zip(answer.trace.drafts, answer.trace.accepted, strict=True):
                most = min(3, 20 - begin - 1)
                assert draft == continued(small, [*source, *answer.ids[:begin]], most, model.eos_ids)
                rejected += accepted < len(draft)
                begin += accepted
    assert rejected


def test_a_model_that_drafts_for_itself_is_always_right(tiny):
    model, sources = tiny.make("gpt2", 1), some_sources(1)
    model.assistant = model
    for answer in decoded(DraftModel(tokens=3), model, sources, 9):
        assert answer.trace.accepted[:-1] == [4] * (len(answer.trace.accepted) - 1)


def test_bytes_are_those_of_both_models(tiny):
    model, [source] = tiny.make("gpt2", 0, torch.float32), some_sources(0, 1)
    model.assistant = tiny.make("gpt2", 7, torch.float32)
    [answer] = decoded(DraftModel(tokens=3), model, [source])
    verifying, drafting = engine_of(model).weights, engine_of(model.assistant).weights
    passes = sum(map(len, answer.trace.drafts))
    assert passes
    assert answer.trace.counters["bytes_read"] == (
        verifying.once + verifying.each_pass * answer.trace.iterations + drafting.once + drafting.each_pass * passes
    )


def test_a_smaller_model_is_needed_with_the_same_tokens_and_room(tiny):
    model = tiny.make("gpt2", 0)
    with pytest.raises(RequestError, match=r"no model drafts for tiny.*task\.assistant"):
        decoded(DraftModel(), model, [[3, 4]])
    model.assistant = tiny.make("gpt2", 1)
    model.assistant.window = 8
    with pytest.raises(RequestError, match=r"takes fewer tokens.*lower the limit"):
        decoded(DraftModel(), model, [[3, 4]])
    model.assistant.vocabulary_size = 50
    with pytest.raises(RequestError, match="an assistant whose embedding has as many"):
        decoded(DraftModel(), model, [[3, 4]])
