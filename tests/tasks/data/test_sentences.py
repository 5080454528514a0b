"""Sentences to words and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.data.sentences import END, MARKS, UNKNOWN, Vocabulary, detokenised, tokenised, types_of


@pytest.mark.parametrize(
    "sentence",
    [
        "A man (the \"driver\") sells 1,000 T-shirts; he's at a kid's table.",
        "Zwei- und dreijährige Kinder laufen durch „Klein-Venedig“.",
        "He paid $20 for the boys' 3.5 metres of rope!",
        "“Yes”, said the man and/or the woman: 50%…",
    ],
)
def test_well_spaced_sentences_survive_the_way_there_and_back(sentence):
    assert detokenised(tokenised(sentence)) == sentence


def test_words_are_as_stated():
    assert tokenised("The man's T-shirt cost 1,000.50 (Zwei- Euro).") == [
        "The", "man", "'s", "T-shirt", "cost", "1,000.50", "(", "Zwei-", "Euro", ")", "."]  # fmt: skip
    assert tokenised("  \t ") == []
    assert detokenised([]) == ""


@given(st.text(max_size=60))
def test_spacing_changes_but_no_other_character_is_lost(text):
    assert "".join(detokenised(tokenised(text)).split()) == "".join(text.split())


def test_types_are_by_frequency_then_alphabet_after_the_marks():
    assert types_of(["b a", "a c b a"]) == [*MARKS, "a", "b", "c"]
    assert types_of(["b a", "a c b a"], limit=3) == [*MARKS, "a"]


def test_ids_and_text_are_inverse_up_to_unknown_words_and_the_end_mark():
    vocabulary = Vocabulary(types_of(["A dog runs ."]))
    assert vocabulary.text(vocabulary.ids("A dog runs.")) == "A dog runs."
    assert vocabulary.ids("A cat runs.")[1] == UNKNOWN
    assert vocabulary.text([*vocabulary.ids("A dog"), END, *vocabulary.ids("runs")]) == "A dog"


def test_text_that_spells_a_mark_is_not_a_mark():
    assert END not in Vocabulary([*MARKS, "a"]).ids("</s> a")
