"""Perplexities equal hand-computed values."""

from __future__ import annotations

import numpy as np
import pytest

from tasks.metrics.perplexity import perplexity


def test_perplexity_per_token_word_and_byte_by_hand() -> None:
    log_probs = [np.log([0.5, 0.25]), np.log([0.125])]  # three tokens of two words: total 6 ln 2
    result = perplexity(log_probs, words=2, size=9)
    assert result["nll"].value == pytest.approx(2 * np.log(2))
    assert result["perplexity"].value == pytest.approx(4.0)
    assert result["word_perplexity"].value == pytest.approx(8.0)
    assert result["bits_per_byte"].value == pytest.approx(6 / 9)
    assert result["perplexity"].low is None, "three tokens are too few for an interval"


def test_the_intervals_hold_the_values_and_move_together() -> None:
    values = np.log(np.random.default_rng(0).uniform(0.01, 1, 20_000))
    result = perplexity([values[:7000], values[7000:]], words=15_000, size=60_000)
    assert result == perplexity([values[:7000], values[7000:]], words=15_000, size=60_000)
    for measure in result.values():
        assert measure.low is not None and measure.high is not None
        assert measure.low < measure.value < measure.high
    nll, word = result["nll"], result["word_perplexity"]
    assert word.low == pytest.approx(np.exp(nll.low * 20_000 / 15_000))
    assert result["perplexity"].high == pytest.approx(np.exp(nll.high))


def test_a_token_of_probability_zero_makes_perplexity_infinite() -> None:
    assert perplexity([np.array([0.0, -np.inf])], words=1, size=2)["perplexity"].value == np.inf


def test_without_words_there_are_bits_per_byte() -> None:
    log_probs = [np.full(2000, -3.0)]
    assert perplexity(log_probs, words=0, size=3000).keys() == {"perplexity", "nll", "bits_per_byte"}
    assert perplexity(log_probs, words=0, size=3000)["bits_per_byte"].value == pytest.approx(2 / np.log(2))
