"""Peers that promise greedy decoding's outputs tell how far tokens are below the best; those with beams do not."""

from __future__ import annotations

import math

import pytest
import torch

from harness.common.phases import NoPhases
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
    assert (gap := max(below)) > 0 and peer.gap(model, source, other, greedy.ids) == pytest.approx(gap, abs=1e-9)
    assert peer.gap(model, source, greedy.ids, other) == pytest.approx(below[0], abs=1e-9)  # the baseline's token
    assert peer.gap(model, source, greedy.ids[:3], greedy.ids) == math.inf  # it stopped without an end token
    monkeypatch.setattr(decoder, "PIECE", 2)
    assert peer.gap(model, source, other, greedy.ids) == pytest.approx(gap, abs=1e-9)
    assert TransformersBeam().gap(model, source, other, greedy.ids) is None
