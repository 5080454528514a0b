"""ROUGE by hand."""

from __future__ import annotations

import pytest

from harness.common.errors import RequestError
from tasks.metrics.rouge import rouge


def f(precision, recall):
    return 100 * 2 * precision * recall / (precision + recall)


def test_scores_by_hand():
    found = rouge(["the cat sat on a mat"], ["the cat lay on the mat"])
    assert found["rouge1"].value == pytest.approx(f(4 / 6, 4 / 6))  # the, cat, on, mat
    assert found["rouge2"].value == pytest.approx(f(1 / 5, 1 / 5))  # the cat
    assert found["rougeL"].value == pytest.approx(f(4 / 6, 4 / 6))


def test_words_are_stemmed_and_marks_do_not_count():
    assert rouge(["He walks!"], ["he walked"])["rouge1"].value == pytest.approx(100)


def test_r_l_is_of_whole_summaries_sentence_by_sentence():
    """The order of sentences does not matter to their union, whether lines or full stops part them."""
    for summary in ("It rained. The dog slept.", "It rained.\nThe dog slept."):
        assert rouge([summary], ["The dog slept.\nIt rained."])["rougeL"].value == pytest.approx(100)


def test_an_empty_summary_scores_nothing():
    assert [measure.value for measure in rouge([""], ["a b"]).values()] == [0, 0, 0]


def test_the_interval_holds_the_mean():
    found = rouge([f"a b {n}" for n in range(20)], [f"a c {n % 3}" for n in range(20)])["rouge1"]
    assert found.low < found.value < found.high


def test_references_in_another_script_are_refused_even_with_digits():
    with pytest.raises(RequestError, match=r"only 2 of 10 letters .* are such: take references in a language of Latin"):
        rouge(["a"] * 2, ["2024年今天天气很好", "GD的3.5%"])


def test_one_reference_in_another_script_or_without_letters_is_scored():
    found = rouge(["fine weather in the north", "2024", "a"], ["fine weather in the north", "2024", "天气"])
    assert found["rouge1"].value == pytest.approx(200 / 3)
