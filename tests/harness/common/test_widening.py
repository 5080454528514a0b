"""A widened model computes what the small one does; so does its drafter."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.common.cache import Cache, CellArtifacts
from harness.common.errors import RequestError
from harness.common.phases import NoPhases
from harness.common.widening import narrow, widened
from methods.aggressive.gad import Gad
from methods.aggressive.iad import Iad
from methods.bandwidth import weights_of
from methods.decoding.search.beam import Beam
from methods.decoding.search.greedy import Greedy

make = runpy.run_path(str(Path(__file__).parents[2] / "methods/generation_models.py"))["make"]
SOURCES = [[5, 6, 7, 8], [9], [10, 10, 10], [11, 12, 13, 14, 15, 16, 17]]


def small(seed, dtype=torch.float64, **changes):
    """A Marian whose norms and biases are random too."""
    model = make("marian", seed, dtype, **changes)
    torch.manual_seed(seed)
    with torch.no_grad():
        for part in model.module.parameters():
            if part.ndim == 1:
                part.add_(0.3 * torch.randn_like(part))
    return model


def decoded(method, model):
    return [(one.ids, one.trace.accepted, one.trace.drafts) for one in method.decode(model, SOURCES, 12, NoPhases())]


@settings(deadline=None, max_examples=15, derandomize=True)
@given(
    times=st.integers(2, 5), seed=st.integers(0, 10_000), scaled=st.booleans(),
    source=st.lists(st.integers(0, 38), min_size=1, max_size=9),
    target=st.lists(st.integers(0, 38), min_size=1, max_size=9),
)  # fmt: skip
def test_logits_are_those_of_the_small_model(times, seed, scaled, source, target):
    model = small(seed)
    if not scaled:
        model.module.model.encoder.embed_scale = model.module.model.decoder.embed_scale = 1.0
    wide, given_ids = widened(model, times), {"input_ids": torch.tensor([source])}
    given_ids["decoder_input_ids"] = torch.tensor([target])
    with torch.inference_mode():
        torch.testing.assert_close(wide.module(**given_ids).logits, model.module(**given_ids).logits, atol=1e-9, rtol=0)
    assert wide.hash != model.hash and narrow(wide) == (model, times) and narrow(model) == (model, 1)


@pytest.mark.parametrize("times", [2, 4])
@pytest.mark.parametrize("method", [Greedy(), Beam(), Iad()])
def test_outputs_and_iterations_are_those_of_the_small_model(times, method):
    model = small(3, torch.float32)
    assert decoded(method, widened(model, times)) == decoded(method, model)


def test_an_exact_power_of_two_changes_nothing_in_bfloat16():
    model = small(3, torch.bfloat16)
    assert decoded(Greedy(), widened(model, 4)) == decoded(Greedy(), model)


def test_a_step_reads_more_by_the_square_of_the_width():
    model = small(3, torch.float32, d_model=64, decoder_ffn_dim=256)
    before, after = weights_of(model).each_pass, weights_of(widened(model, 4)).each_pass
    assert 13 < after / before < 16


def test_the_drafter_is_trained_once_for_all_widths_and_drafts_the_same(tmp_path):
    model, pairs = small(2, torch.float32), [([5, 6, 7, 0], [8, 9, 10, 0])] * 20
    found = []
    for times in (1, 2, 4):
        artifacts = CellArtifacts(Cache(tmp_path))
        method = Gad(block=3, trained_block=3, steps=2, batch_ids=64)
        wide = widened(model, times)
        method.fit(wide, (), pairs, artifacts)
        method.open(wide, artifacts)
        found.append(decoded(method, wide))
        assert method._drafting.module.config.d_model == 16 * times
    assert found[0] == found[1] == found[2]
    assert len(list((tmp_path / "nar-drafter").glob("*/key.json"))) == 1


@pytest.mark.parametrize(("kind", "changes"), [("bart", {}), ("gpt2", {}), ("marian", {"tie_word_embeddings": False})])
def test_another_architecture_is_refused_by_its_name(kind, changes):
    with pytest.raises(RequestError, match=r"widen = 2: only encoder-decoders of Marian's .*, and tiny is a"):
        widened(make(kind, 0, **changes), 2)
