"""In float32, as users decode: compiled steps and packed matrices against `generate` of transformers."""

from __future__ import annotations

import random

import pytest
import torch

from harness.common.phases import NoPhases
from harness.contracts.answers import NEAR_TIE
from methods.aggressive.iad import Iad
from methods.decoding.engine.engines import engine_of
from methods.decoding.peers.generate import TransformersBeam, TransformersGreedy
from methods.decoding.search.beam import Beam
from methods.decoding.search.greedy import Greedy

WIDE = {"d_model": 272, "init_std": 0.1}  # only steps of up to five tokens are compiled
MODELS = [("marian", {}), ("bart", {}), ("t5", {}), ("gpt2", {}), ("marian", WIDE), ("bart", WIDE)]


def outputs(method, model, sources, limit=12):
    return [decoded.ids for decoded in method.decode(model, sources, limit, NoPhases())]


def one_by_one(method, model, sources, limit=12):
    return [outputs(method, model, [source], limit)[0] for source in sources]


def assert_greedy(model, sources, limit=12):
    """Greedy search and IAD, alone and in a batch, part from transformers' greedy search at near ties only."""
    theirs = one_by_one(TransformersGreedy(), model, sources, limit)
    for method in (Greedy(), Iad()):
        for ours in (outputs(method, model, sources, limit), one_by_one(method, model, sources, limit)):
            for source, ids, wanted in zip(sources, ours, theirs, strict=True):
                assert ids == wanted or Iad().gap(model, source, ids, wanted, limit) <= NEAR_TIE


def made(tiny, kind, changes):
    model, chosen = tiny.make(kind, 1, torch.float32, **changes), random.Random(1)
    if kind in ("marian", "bart"):
        assert engine_of(model).compiled is not None
    return model, [[chosen.randrange(3, 39) for _ in range(chosen.randrange(1, 10))] for _ in range(5)]


@pytest.mark.parametrize(("kind", "changes"), MODELS)
def test_greedy_search_and_iad_are_transformers_greedy(tiny, kind, changes):
    assert_greedy(*made(tiny, kind, changes))


@pytest.mark.parametrize(("kind", "changes"), MODELS)
def test_beam_search_is_transformers_beam(tiny, kind, changes):
    """Of one sentence five rows, of a batch 25: compiled steps and others."""
    model, sources = made(tiny, kind, changes)
    theirs = one_by_one(TransformersBeam(), model, sources)
    assert one_by_one(Beam(), model, sources) == theirs
    assert outputs(Beam(), model, sources) == theirs


@pytest.mark.parametrize("part", [24, 96])
def test_long_drafts_are_verified_as_transformers_decodes(tiny, part):
    """A model that copies with errors, whose drafts are accepted in part."""
    model, chosen = tiny.copier(3, 0.8, torch.float32, part=part), random.Random(3)
    sources = [[*[chosen.randrange(3, 39) for _ in range(length)], 2] for length in (26, 3, 14, 24)]
    assert_greedy(model, sources, 30)
    blocks = [count for answer in Iad().decode(model, sources, 30, NoPhases()) for count in answer.trace.accepted]
    assert max(blocks) > 5 and blocks.count(1) > 5
