"""Assisted decoding of transformers: a smaller model drafts, the outputs are greedy decoding's."""

from __future__ import annotations

import random

import pytest

from harness.common.errors import RequestError
from harness.common.phases import NoPhases
from methods.decoding.peers.generate import TransformersAssisted
from methods.decoding.search.greedy import Greedy


def some_sources(seed, count=4):
    chosen = random.Random(seed)
    return [[chosen.randrange(3, 39) for _ in range(chosen.randrange(1, 12))] for _ in range(count)]


def decoded(method, model, sources):
    return method.decode(model, sources, 12, NoPhases())


@pytest.mark.parametrize("kind", ["marian", "bart", "t5", "gpt2"])
@pytest.mark.parametrize("seed", range(2))
def test_whatever_drafts_the_outputs_are_greedy(tiny, kind, seed):
    model, sources = tiny.make(kind, seed), some_sources(seed)
    model.assistant = tiny.make(kind, seed + 10)
    wanted = [answer.ids for answer in decoded(Greedy(), model, sources)]
    answers = decoded(TransformersAssisted(tokens=4), model, sources)
    assert [answer.ids for answer in answers] == wanted
    for answer in answers:
        assert sum(answer.trace.accepted) == len(answer.ids)
        assert answer.trace.iterations == len(answer.trace.accepted)


def test_an_assistant_that_agrees_saves_iterations(tiny):
    model, sources = tiny.copier(1, 0.0), [[*source, 2] for source in some_sources(1)]
    model.assistant = tiny.copier(1, 0.0)
    for answer in decoded(TransformersAssisted(tokens=4), model, sources):
        assert answer.trace.iterations < len(answer.ids)


def test_an_assistant_is_needed_and_must_speak_the_same_tokens(tiny):
    model = tiny.make("marian", 0)
    with pytest.raises(RequestError, match=r"no model drafts for tiny.*task\.assistant"):
        decoded(TransformersAssisted(), model, [[3, 0]])
    model.assistant = tiny.make("marian", 1)
    model.assistant.vocabulary_size = 50
    with pytest.raises(RequestError, match="an assistant whose embedding has as many"):
        decoded(TransformersAssisted(), model, [[3, 0]])
