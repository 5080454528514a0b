"""Drafts from an index: the output is greedy decoding's, and text that the model writes saves iterations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.common.cache import Cache, CellArtifacts
from harness.common.phases import NoPhases
from methods.decoding.search.greedy import Greedy
from methods.infinigram.drafting import InfinigramDrafter, InfinigramSpeculative, Written


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
    block=st.integers(1, 6), least=st.integers(0, 2), limit=st.integers(0, 14), own=st.booleans(),
)  # fmt: skip
def test_output_is_greedy_decoding_s(tiny, tmp_path_factory, seed, sources, reference, block, least, limit, own):
    model = tiny.make("gpt2", seed)
    greedy = [decoded.ids for decoded in Greedy().decode(model, sources, limit, NoPhases())]
    # text that the model itself writes among the reference, so that drafts are accepted
    method = fitted(
        tmp_path_factory.mktemp("index"), model, [*reference, *filter(None, greedy)], block=block, least=least, own=own
    )
    assert [decoded.ids for decoded in method.decode(model, sources, limit, NoPhases())] == greedy


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_known_text_saves_iterations(tiny, tmp_path, share):
    model = tiny.make("gpt2", 3)
    source = [5, 6, 7]
    [greedy] = Greedy().decode(model, [source], 30, NoPhases())
    method = fitted(tmp_path, model, [[*source, *greedy.ids], [1, 2, 3]], least=1, share=share)
    [found] = method.decode(model, [source], 30, NoPhases())
    assert found.ids == greedy.ids
    assert found.trace.iterations < len(greedy.ids) / 2
    assert method.counters()["index_bytes"] > 0


@settings(deadline=None)
@given(st.lists(st.integers(0, 3), max_size=30), st.integers(0, 30))
def test_the_longest_earlier_match_is_the_last_of_those(tokens, first):
    written = Written(tokens[:first])
    written.extend(tokens[first:])
    assert written.tokens == tokens
    for size in range(len(tokens) - 1, 0, -1):
        ends = [end for end in range(size, len(tokens)) if tokens[end - size : end] == tokens[len(tokens) - size :]]
        if ends:
            assert written.longest() == (size, ends[-1])
            return
    assert written.longest() == (0, 0)


def test_what_the_prompt_holds_is_drafted_where_it_matches_longer(tiny, tmp_path):
    model = tiny.make("gpt2", 3)
    method = fitted(tmp_path, model, [[1, 2, 3, 4, 5, 6]], least=1)

    def drafted(prompt, own):
        return InfinigramDrafter(method._index, [prompt], 3, 1, 0.0, own).draft([0], [8])[0]

    assert drafted([9, 2, 3, 7, 8, 9, 2, 3], own=True) == [7, 8, 9]  # three tokens before, two in the index
    assert drafted([9, 2, 3, 7, 8, 9, 2, 3], own=False) == [4, 5, 6]
    assert drafted([3, 7, 8, 1, 2, 3], own=True) == [4, 5, 6]  # one token before, three in the index
    assert drafted([9, 7, 7, 7], own=True) == [7, 7, 7]  # a loop goes on
    assert drafted([8, 9, 8, 9], own=True) == [8, 9, 8]
