"""Drafts from suffix trees: the output is greedy decoding's, repetition saves iterations, the package may be absent."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.common.errors import NotInstalledError
from harness.common.phases import NoPhases
from methods.decoding.peers.suffix_decoding import SuffixDecoding
from methods.decoding.search.greedy import Greedy


def test_without_the_package_the_cell_fails(tiny, monkeypatch):
    monkeypatch.setitem(sys.modules, "arctic_inference", None)
    with pytest.raises(NotInstalledError, match="arctic-inference is not installed"):
        SuffixDecoding().decode(tiny.make("gpt2", 0), [[1, 2]], 4, NoPhases())


@settings(deadline=None, max_examples=25, derandomize=True)
@given(
    seed=st.integers(0, 10_000),
    sources=st.lists(st.lists(st.integers(0, 39), max_size=12), min_size=1, max_size=4),
    block=st.integers(1, 6), limit=st.integers(0, 14),
)  # fmt: skip
def test_output_is_greedy_decoding_s(tiny, seed, sources, block, limit):
    pytest.importorskip("arctic_inference.suffix_decoding")
    model = tiny.make("gpt2", seed)
    greedy = [decoded.ids for decoded in Greedy().decode(model, sources, limit, NoPhases())]
    method = SuffixDecoding(block=block, depth=8, factor=4.0)
    for _ in range(2):  # a second batch knows nothing of the first
        found = method.decode(model, sources, limit, NoPhases())
        assert [decoded.ids for decoded in found] == greedy
    first, second = (method.decode(model, sources, limit, NoPhases()) for _ in range(2))
    assert [one.trace for one in first] == [one.trace for one in second]


def test_a_prompt_that_holds_the_output_saves_iterations(tiny):
    pytest.importorskip("arctic_inference.suffix_decoding")
    model = tiny.make("gpt2", 3)
    [greedy] = Greedy().decode(model, [[5, 6, 7]], 30, NoPhases())
    prompt = [5, 6, 7, *greedy.ids, 5, 6, 7]
    [expected] = Greedy().decode(model, [prompt], 60, NoPhases())
    [found] = SuffixDecoding(factor=4.0).decode(model, [prompt], 60, NoPhases())
    assert found.ids == expected.ids
    assert found.trace.iterations < 60
