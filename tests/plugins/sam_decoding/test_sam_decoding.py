"""The plug-in is found; its match is that of a naive search; its output is greedy decoding's."""

from __future__ import annotations

import random
import runpy
from pathlib import Path

import pytest

from harness.common.phases import NoPhases
from harness.plan.registry import refusal

MODELS = runpy.run_path(str(Path(__file__).parents[2] / "methods" / "generation_models.py"))


def naive_match(text):
    for length in range(len(text) - 1, 0, -1):
        for end in range(len(text) - 1, length - 1, -1):
            if text[end - length : end] == text[-length:]:
                return length, end
    return 0, 0


@pytest.mark.parametrize("seed", range(40))
def test_the_match_is_the_longest_and_latest(plugin, seed):
    from sam_decoding.decoder import SuffixAutomaton

    chosen = random.Random(seed)
    text = [chosen.randrange(1 + seed % 4) for _ in range(40)]
    automaton = SuffixAutomaton(text[: seed % 7])
    for n in range(seed % 7, len(text)):
        automaton.extend(text[n : n + 1])
        assert automaton.match == naive_match(text[: n + 1])


def test_what_followed_is_drafted_again_where_it_is_short(plugin):
    from sam_decoding.decoder import SamDrafter

    drafter = SamDrafter([[7, 8, 9, 7, 8], [1, 2, 3], [4, 4]], block=5, least=1)
    assert drafter.draft([0, 1, 2], [9, 9, 2]) == [[9, 7, 8, 9, 7], [], [4, 4]]
    drafter.accept(2, [7, 4, 4], 2)
    assert drafter.draft([2], [4]) == [[7, 4, 4, 7]]


@pytest.mark.parametrize("seed", range(8))
def test_the_output_is_greedy_decoding_s(plugin, seed):
    assert refusal(plugin.entry("method", "sam-decoding"), plugin.entry("task", "causal-generation")) is None
    model, sources = MODELS["make"]("gpt2", seed), [[5, 6, 7, 5, 6], [8, 9], [10]]
    greedy, ours = (plugin.resolve("method", name)() for name in ("greedy", "sam-decoding"))
    expected, outputs = (decoder.decode(model, sources, 30, NoPhases()) for decoder in (greedy, ours))
    assert [output.ids for output in outputs] == [output.ids for output in expected]
    assert any(draft for output in outputs for draft in output.trace.drafts)
