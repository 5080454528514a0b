"""GLEU on cases worked by hand."""

from __future__ import annotations

import math

import pytest

from harness.common.errors import RequestError
from tasks.metrics.gleu import gleu


def one(source, hypothesis, *references):
    return gleu([source.split()], [hypothesis.split()], [[text.split() for text in references]]).value


def test_the_reference_itself_scores_100_and_nothing_in_common_0():
    assert one("a b c d", "a b c e", "a b c e") == pytest.approx(100)
    assert one("a b c d", "x y z w", "a b c e") == 0
    assert one("a b c d", "", "a b c e") == 0


def test_keeping_what_the_reference_changed_costs_credit():
    # matches less kept errors, orders 1 to 4: (5-1)/6, (4-1)/5, (3-1)/4, (2-1)/3
    wanted = 100 * (4 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25
    assert one("a b c d e f", "a b c d e f", "a b c d e g") == pytest.approx(wanted)


def test_a_short_hypothesis_pays_for_its_brevity():
    assert one("a b c d e", "a b c d", "a b c d e") == pytest.approx(100 * math.exp(1 - 5 / 4))


def test_the_score_is_the_mean_over_drawn_references_and_repeats():
    good, bad = "a b c e", "x y z w"
    value = one("a b c d", "a b c e", good, bad)
    assert 40 < value < 60  # the good reference is drawn in about half of the draws
    assert value == one("a b c d", "a b c e", good, bad)


def test_the_interval_comes_from_sentences_and_holds_the_value():
    sources = [f"a b c d {number}".split() for number in range(40)]
    hypotheses = [[*source[:4], "x"] if number % 2 else source for number, source in enumerate(sources)]
    references = [[[*source[:4], "x"]] * 2 for source in sources]
    found = gleu(sources, hypotheses, references)
    assert found.low < found.value < found.high
    assert found == gleu(sources, hypotheses, references)


def test_unequal_numbers_are_refused():
    with pytest.raises(RequestError, match="1 hypotheses and 1 sets of references for 2 sources"):
        gleu([["a"], ["b"]], [["a"]], [[["a"]]])
    with pytest.raises(RequestError, match="same number of references"):
        gleu([["a"], ["b"]], [["a"], ["b"]], [[["a"]], [["b"], ["c"]]])
