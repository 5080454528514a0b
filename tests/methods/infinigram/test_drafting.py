"""Drafts from an index: the output is greedy decoding's, and text that the model writes saves iterations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.measure.artifacts import Cache, CellArtifacts
from harness.measure.phases import NoPhases
from methods.decoding.greedy import Greedy
from methods.infinigram.drafting import InfinigramSpeculative


def fitted(folder, model, reference, **parameters):
    method, artifacts = InfinigramSpeculative(**parameters), CellArtifacts(Cache(folder))
    method.fit(model, [np.array(stream, np.int64) for stream in reference], (), artifacts)
    method.open(model, artifacts)
    return method


@settings(deadline=None, max_examples=25, derandomize=True)
@given(
    seed=st.integers(0, 10_000),
    sources=st.lists(st.lists(st.integers(0, 39), max_size=12), min_size=1, max_size=4),
    reference=st.lists(st.lists(st.integers(0, 39), min_size=1, max_size=30), min_size=1, max_size=4),
    block=st.integers(1, 6), least=st.integers(0, 2), limit=st.integers(0, 14),
)  # fmt: skip
def test_output_is_greedy_decoding_s(tiny, tmp_path_factory, seed, sources, reference, block, least, limit):
    model = tiny.make("gpt2", seed)
    greedy = [decoded.ids for decoded in Greedy().decode(model, sources, limit, NoPhases())]
    # text that the model itself writes among the reference, so that drafts are accepted
    method = fitted(
        tmp_path_factory.mktemp("index"), model, [*reference, *filter(None, greedy)], block=block, least=least
    )
    assert [decoded.ids for decoded in method.decode(model, sources, limit, NoPhases())] == greedy


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_known_text_saves_iterations(tiny, tmp_path, share):
    model = tiny.make("gpt2", 3, ending=-50.0)
    source = [5, 6, 7]
    [greedy] = Greedy().decode(model, [source], 30, NoPhases())
    method = fitted(tmp_path, model, [[*source, *greedy.ids], [1, 2, 3]], least=1, share=share)
    [found] = method.decode(model, [source], 30, NoPhases())
    assert found.ids == greedy.ids
    assert found.trace.iterations < len(greedy.ids) / 2
    assert method.counters()["index_bytes"] > 0
