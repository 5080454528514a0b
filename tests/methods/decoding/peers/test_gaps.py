"""Peers that promise greedy decoding's outputs tell how far tokens are below the best; those with beams do not."""

from __future__ import annotations

import math

import pytest
import torch

from harness.common.phases import NoPhases
from harness.contracts.answers import NEAR_TIE
from methods.decoding.drafting import decoder
from methods.decoding.peers.economize_lookup import EconomizeLookup
from methods.decoding.peers.generate import TransformersBeam, TransformersGreedy, TransformersPromptLookup
from methods.decoding.search.greedy import Greedy


@pytest.mark.parametrize("peer", [TransformersGreedy(), TransformersPromptLookup(), EconomizeLookup()])
def test_the_gap_is_the_farthest_below_the_best_from_where_outputs_part(tiny, monkeypatch, peer):
    model, source = tiny.make("gpt2", 0), [5, 6, 7]
    [greedy] = Greedy().decode(model, [source], 6, NoPhases())
    other = [*greedy.ids[:3], (greedy.ids[3] + 1) % 40, *greedy.ids[4:]]
    with torch.no_grad():
        logits = model.module(torch.tensor([[*source, *other[:-1]]])).logits[0, len(source) + 2 :]
    below = [float(row.max() - row[token]) for row, token in zip(logits, other[3:], strict=True)]
    assert (gap := max(below)) > 0 and peer.gap(model, source, other, greedy.ids, 6) == pytest.approx(gap, abs=1e-9)
    assert peer.gap(model, source, greedy.ids, other, 6) == pytest.approx(below[0], abs=1e-9)  # the baseline's token
    assert peer.gap(model, source, greedy.ids[:3], greedy.ids, 6) == math.inf  # it stopped without an end token
    assert peer.gap(model, source, other, greedy.ids, 7) == math.inf  # as long as the baseline's, which may go on
    monkeypatch.setattr(decoder, "PIECE", 2)
    assert peer.gap(model, source, other, greedy.ids, 6) == pytest.approx(gap, abs=1e-9)
    assert TransformersBeam().gap(model, source, other, greedy.ids, 6) is None


def test_an_early_end_is_no_near_tie_where_the_limit_forces_one(tiny):
    model, source, peer = tiny.make("bart", 0, ending=0.0), [5, 6, 7], TransformersGreedy()
    model.module.generation_config.forced_eos_token_id = model.eos_ids[0]
    [greedy] = Greedy().decode(model, [source], 6, NoPhases())
    assert greedy.ids[-1] in model.eos_ids
    early = [*greedy.ids[:4], *model.eos_ids]
    assert peer.gap(model, source, early, greedy.ids, 6) > NEAR_TIE
