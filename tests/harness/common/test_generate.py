"""What tasks and methods share around `generate` of transformers; its outputs are tested with its users."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from transformers import GenerationConfig

from harness.common.generate import Constraints, maximum_new_tokens, repeated, until_end


def test_an_output_ends_with_its_first_end_token():
    assert until_end([5, 1, 7, 1], (1,)) == [5, 1]
    assert until_end([5, 7], (1,)) == [5, 7]


def test_a_causal_models_window_holds_the_source_but_not_the_last_token():
    module = SimpleNamespace()
    causal, other = (
        SimpleNamespace(kind=kind, window=10, module=module, eos_ids=()) for kind in ("causal", "encoder-decoder")
    )
    assert [maximum_new_tokens(causal, [5] * n, 20) for n in (0, 1, 4, 10)] == [10, 10, 7, 1]
    assert [maximum_new_tokens(other, [5] * n, 20) for n in (0, 10)] == [10, 10]
    assert maximum_new_tokens(causal, [5], 3) == maximum_new_tokens(other, [5], 3) == 3


def test_suppressed_tokens_are_the_single_ones():
    config = SimpleNamespace(bad_words_ids=[[7], [5, 6], [3]], suppress_tokens=[9, 3])
    found = Constraints.of(SimpleNamespace(generation_config=config), [1])
    assert (found.suppressed, found.ignored, found.by_position) == ((3, 7, 9), ("bad_words_ids",), False)
    assert Constraints.of(SimpleNamespace(), ()) == Constraints()


def test_what_is_honoured_and_what_is_not_is_said():
    given = {"repetition_penalty": 1.2, "num_beams": 4, "min_length": 5, "max_length": 30, "bad_words_ids": [[7]]}
    found = Constraints.of(SimpleNamespace(generation_config=GenerationConfig(**given)), [1])
    assert found.facts() == {
        "generation_settings": "min_length 5, max_length 30",
        "ignored_generation_settings": "repetition_penalty",
    }
    assert Constraints.of(SimpleNamespace(generation_config=GenerationConfig(num_beams=4)), [1]).facts() == {}
    other = SimpleNamespace(force_words_ids=[[7]], renormalize_logits=True, max_new_tokens=5, max_length=30)
    assert Constraints.of(SimpleNamespace(generation_config=other), [1]).facts() == {
        "generation_settings": "max_new_tokens 5",
        "ignored_generation_settings": "force_words_ids, renormalize_logits",
    }


def test_the_configured_longest_sequence_ends_outputs():
    module = SimpleNamespace(generation_config=GenerationConfig(max_length=8))
    causal, other = (
        SimpleNamespace(kind=kind, window=10, module=module, eos_ids=(1,)) for kind in ("causal", "encoder-decoder")
    )
    assert [maximum_new_tokens(causal, [5] * n, 20) for n in (0, 3, 8, 10)] == [7, 5, 0, 0]
    assert maximum_new_tokens(other, [5] * 9, 20) == 7


@pytest.mark.parametrize("given", [{"max_new_tokens": 5}, {"max_new_tokens": 5, "max_length": 2}])
def test_the_configured_longest_output_ends_outputs_whatever_the_longest_sequence(given):
    module = SimpleNamespace(generation_config=GenerationConfig(**given))
    causal, other = (
        SimpleNamespace(kind=kind, window=10, module=module, eos_ids=(1,)) for kind in ("causal", "encoder-decoder")
    )
    assert [maximum_new_tokens(causal, [5] * n, 20) for n in (1, 6, 7, 10)] == [5, 5, 4, 1]
    assert [maximum_new_tokens(other, [5] * 9, limit) for limit in (3, 20)] == [3, 5]


def test_repeated_sequences_are_found_across_prompt_and_output():
    assert repeated([1, 2, 3], [1, 2], 3) == [3]
    assert repeated([1, 2, 3, 1, 2, 4], [1, 2], 3) == [3, 4]
    assert repeated([1, 2], [], 3) == [] and repeated([5, 6], [5], 1) == [5, 6, 5]
