"""The grammar of clean sentences for scale mini."""

from __future__ import annotations

import re

from tasks.data.corruption.grammar import NAMES, clean_sentences, inflected


def test_sentences_repeat_with_the_seed_and_vary_without():
    first, again, other = (list(clean_sentences(seed, 200)) for seed in (1, 1, 2))
    assert first == again != other
    assert len({" ".join(sentence) for sentence in clean_sentences(1, 3000)}) > 2990


def test_sentences_are_written_as_sentences():
    for sentence in clean_sentences(4, 500):
        assert sentence[0][0].isupper()
        assert sentence[-1] == "."
        assert 4 <= len(sentence) <= 60


def test_every_word_is_known_to_the_lexicon_of_the_grammar():
    words = {word.lower() for sentence in clean_sentences(5, 2000) for word in sentence}
    marks = {",", ".", "n't", "1998", "mondays", "english", *map(str.lower, NAMES)}
    assert words - marks <= inflected()


def test_agreement_articles_and_tense_are_right():
    text = " ".join(" ".join(sentence) for sentence in clean_sentences(6, 3000))
    assert not re.search(r"\b(he|she|it) (are|were|have|do)\b", text)
    assert not re.search(r"\b(we|they) (is|was|has|does)\b", text)
    assert not re.search(r"\b[Aa] [aeio]\w+", text)
    assert not re.search(r"\b[Aa]n [bcdfgjklmnpqrstvwxyz]\w+", text)
    assert not re.search(r"\b(many|these|those|several) (\w+ )?information\b", text)
