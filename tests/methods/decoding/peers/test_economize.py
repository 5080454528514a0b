"""Prompt lookup by economize on causal models."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from harness.common.errors import RequestError
from harness.common.phases import NoPhases
from methods.decoding.peers.economize_lookup import EconomizeLookup
from methods.decoding.search.greedy import Greedy

pytest.importorskip("economize", exc_type=ImportError)
SOURCES = [[5, 6, 7, 5, 6], [8, 9], [10, 11, 12]]


def llama(tiny, seed):
    """A random Llama; such models soon repeat themselves."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=40, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=64, initializer_range=0.4, bos_token_id=1, eos_token_id=2, pad_token_id=2,
    )  # fmt: skip
    return tiny.Model(LlamaForCausalLM(config).eval(), 1, (2,), 64, "causal")


def test_outputs_are_those_of_greedy_search_in_fewer_iterations(tiny):
    tokens = iterations = 0
    for seed in range(4):
        model = llama(tiny, seed)
        greedy = [decoded.ids for decoded in Greedy().decode(model, SOURCES, 30, NoPhases())]
        method = EconomizeLookup()
        found = method.decode(model, SOURCES, 30, NoPhases())
        assert [decoded.ids for decoded in found] == greedy
        assert [decoded.ids for decoded in method.decode(model, SOURCES, 0, NoPhases())] == [[], [], []]
        tokens += sum(len(decoded.ids) for decoded in found)
        iterations += sum(decoded.trace.iterations for decoded in found)
    assert iterations < tokens


def test_models_that_it_does_not_know_are_refused(tiny):
    for kind, message in (("marian", "economize decodes causal models"), ("gpt2", "economize does not know tiny")):
        with pytest.raises(RequestError, match=message):
            EconomizeLookup().decode(tiny.make(kind, 0, dtype=torch.float32), [[5, 6]], 4, NoPhases())
