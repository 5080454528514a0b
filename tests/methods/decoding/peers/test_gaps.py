"""Peers that promise greedy decoding's outputs tell how far tokens are below the best; those with beams do not."""

from __future__ import annotations

import math

import pytest
import torch

from harness.common.phases import NoPhases
from methods.decoding.peers.economize_lookup import EconomizeLookup
from methods.decoding.peers.generate import TransformersBeam, TransformersGreedy, TransformersPromptLookup
from methods.decoding.search.greedy import Greedy


@pytest.mark.parametrize("peer", [TransformersGreedy(), TransformersPromptLookup(), EconomizeLookup()])
def test_the_gap_is_that_of_the_lower_token_where_outputs_part(tiny, peer):
    model, source = tiny.make("gpt2", 0), [5, 6, 7]
    [greedy] = Greedy().decode(model, [source], 6, NoPhases())
    other = [*greedy.ids[:3], (greedy.ids[3] + 1) % 40]
    with torch.no_grad():
        logits = model.module(torch.tensor([[*source, *greedy.ids[:3]]])).logits[0, -1]
    gap = float(logits.max() - logits[other[3]])
    assert gap > 0 and peer.gap(model, source, other, greedy.ids) == pytest.approx(gap, abs=1e-9)
    assert peer.gap(model, source, greedy.ids[:3], greedy.ids) == math.inf  # it stopped without an end token
    assert TransformersBeam().gap(model, source, other, greedy.ids) is None
