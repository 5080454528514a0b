"""What tasks and methods share around `generate` of transformers; its outputs are tested with its users."""

from __future__ import annotations

from types import SimpleNamespace

from harness.generate import maximum_new_tokens, suppressed, until_end


def test_an_output_ends_with_its_first_end_token():
    assert until_end([5, 1, 7, 1], (1,)) == [5, 1]
    assert until_end([5, 7], (1,)) == [5, 7]


def test_a_causal_models_window_holds_the_source_but_not_the_last_token():
    causal, other = (SimpleNamespace(kind=kind, window=10) for kind in ("causal", "encoder-decoder"))
    assert [maximum_new_tokens(causal, [5] * n, 20) for n in (0, 1, 4, 10)] == [10, 10, 7, 1]
    assert [maximum_new_tokens(other, [5] * n, 20) for n in (0, 10)] == [10, 10]
    assert maximum_new_tokens(causal, [5], 3) == maximum_new_tokens(other, [5], 3) == 3


def test_suppressed_tokens_are_the_single_ones():
    config = SimpleNamespace(bad_words_ids=[[7], [5, 6], [3]], suppress_tokens=[9, 3])
    assert suppressed(SimpleNamespace(generation_config=config)) == (3, 7, 9)
    assert suppressed(SimpleNamespace()) == ()
