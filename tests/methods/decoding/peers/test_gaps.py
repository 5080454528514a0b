"""Peers that promise greedy decoding's outputs tell how far apart two tokens were; those with beams do not."""

from __future__ import annotations

import pytest
import torch

from harness.common.phases import NoPhases
from methods.decoding.peers.economize_lookup import EconomizeLookup
from methods.decoding.peers.generate import TransformersBeam, TransformersGreedy, TransformersPromptLookup
from methods.decoding.search.greedy import Greedy


@pytest.mark.parametrize("peer", [TransformersGreedy(), TransformersPromptLookup(), EconomizeLookup()])
def test_the_gap_is_that_of_the_two_best_logits(tiny, peer):
    model, source = tiny.make("gpt2", 0), [5, 6, 7]
    [greedy] = Greedy().decode(model, [source], 6, NoPhases())
    other = [*greedy.ids[:3], (greedy.ids[3] + 1) % 40]
    with torch.no_grad():
        best = model.module(torch.tensor([[*source, *greedy.ids[:3]]])).logits[0, -1].topk(2).values
    assert peer.gap(model, source, other, greedy.ids) == pytest.approx(float(best[0] - best[1]), abs=1e-9)
    assert TransformersBeam().gap(model, source, other, greedy.ids) is None
