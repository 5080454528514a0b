"""Synthetic errors: what they are, how many, and that the corrections undo them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.data.corruption import ErrorModel, Lexicon, annotate
from tasks.data.corruption.errors import misspelt
from tasks.data.corruption.grammar import clean_sentences
from tasks.data.corruption.misspellings import misspellings
from tasks.metrics.m2 import Annotated, counts, score
from tasks.metrics.m2_lattice import Gold

SENTENCES = list(clean_sentences(3, 400))


def undone(wrong, corrections):
    result = list(wrong)
    for correction in reversed(corrections):
        result[correction.start : correction.end] = correction.words
    return result


@given(st.integers(0, 2**32), st.sampled_from(SENTENCES), st.floats(0, 8))
@settings(deadline=None, max_examples=300)
def test_the_corrections_give_the_clean_sentence_back(seed, sentence, rate):
    wrong, corrections = annotate(sentence, np.random.default_rng(seed), rate=rate)
    assert undone(wrong, corrections) == sentence
    assert all(list(c.words) != wrong[c.start : c.end] for c in corrections)
    assert [c.start for c in corrections] == sorted(c.start for c in corrections)


@given(st.lists(st.text("Aab'I,.-1é", min_size=1, max_size=4), max_size=8), st.integers(0, 99))
@settings(deadline=None, max_examples=200)
def test_any_tokens_go_through(tokens, seed):
    wrong, corrections = annotate(tokens, np.random.default_rng(seed), rate=5.0)
    assert undone(wrong, corrections) == tokens


def test_the_clean_sentence_scores_full_marks_against_the_corrections():
    rng = np.random.default_rng(2)
    gold = []
    for sentence in SENTENCES:
        wrong, corrections = annotate(sentence, rng)
        gold.append(Annotated(tuple(wrong), {0: [Gold(c.start, c.end, (c.words,)) for c in corrections]}))
    assert score(counts(SENTENCES, gold)).f > 0.998
    assert score(counts([list(item.source) for item in gold], gold)).recall == 0


def test_the_same_seed_gives_the_same_errors_and_rate_none_gives_none():
    first, second = ([annotate(s, np.random.default_rng(5)) for s in SENTENCES[:50]] for _ in range(2))
    assert first == second
    assert annotate(SENTENCES[0], np.random.default_rng(5), rate=0.0) == (SENTENCES[0], [])


def test_errors_are_as_dense_as_in_learner_text_and_some_sentences_have_none():
    rng = np.random.default_rng(0)
    found = [len(annotate(sentence, rng)[1]) for sentence in SENTENCES]
    density = sum(found) / sum(map(len, SENTENCES))
    assert 0.06 < density < 0.16
    assert 0.1 < np.mean([count == 0 for count in found]) < 0.5


def test_the_commonest_types_of_the_shared_task_occur_in_their_order():
    rng = np.random.default_rng(0)
    kinds = [correction.kind for sentence in SENTENCES * 5 for correction in annotate(sentence, rng)[1]]
    assert {"ArtOrDet", "Prep", "Nn", "SVA", "Vform", "Vt", "Wci", "Mec", "Trans", "Rloc-", "WOinc"} <= set(kinds)
    assert max(set(kinds), key=kinds.count) == "ArtOrDet"
    assert kinds.count("Nn") > kinds.count("SVA") > kinds.count("WOinc")


@pytest.mark.parametrize("word", ["technology", "develop", "science", "the", "is"])
def test_misspelt_words_stay_near_the_word(word):
    rng = np.random.default_rng(1)
    wrong = {misspelt(word, rng) for _ in range(50)} - {word}
    assert bool(wrong) == (len(word) > 2)
    listed = misspellings().get(word, ())
    assert all(other in listed or (abs(len(other) - len(word)) <= 1 and other[0] == word[0]) for other in wrong)


def test_half_of_the_misspellings_of_a_listed_word_are_listed_ones():
    rng = np.random.default_rng(0)
    listed = misspellings()["receive"]
    made = [misspelt("receive", rng) for _ in range(2000)]
    rules = sum(word not in listed for word in made) / len(made)
    assert 0.2 < rules < 0.55  # the rules, too, swap letters that the list has
    assert set(listed) <= set(made)


def test_a_lexicon_knows_forms_from_the_text_alone():
    text = "the device works . devices worked and are working . they work well . a safe place is safely kept ."
    lexicon = Lexicon.of([text.split()], least=1)
    assert lexicon.nouns["device"] == "devices"
    assert lexicon.verbs["worked"]["gerund"] == "working"
    assert "safely" in lexicon.families["safe"]
    assert "Paris" not in lexicon.common
    assert ErrorModel(lexicon)["zyzzyva"].total == 0  # a word the text does not know is left alone
    assert {rule.words for rule in ErrorModel(lexicon)["device"].rules} >= {("devices",), ("the", "device")}


def test_look_alikes_are_one_letter_apart():
    counts = {"form": 20, "from": 30, "farm": 15, "firm": 12, "table": 50}
    lookalikes = Lexicon.from_counts(counts).lookalikes
    assert set(lookalikes["form"]) == {"farm", "firm"}  # `from` is a function word with rules of its own
    assert "table" not in lookalikes
