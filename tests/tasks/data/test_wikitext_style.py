"""Text as WikiText writes it."""

from __future__ import annotations

import pytest

from tasks.data.text import Source
from tasks.data.wikitext_style import AsWikitext, tokens, written


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("It cost 1,250.5 francs.", "It cost 1 @,@ 250 @.@ 5 francs ."),
        ("a well-known co-op - and", "a well @-@ known co @-@ op - and"),
        ('the city\'s "Old" wall (1,2)', 'the city \'s " Old " wall ( 1 @,@ 2 )'),
        ("He left... then", "He left ... then"),
        ("", ""),
    ],
)
def test_tokens_are_those_of_wikitext(line, expected):
    assert " ".join(tokens(line)) == expected


def test_headings_stand_between_equals_signs_and_unknown_words_are_marked():
    article = "The first line of it.\nEarly life.\nHe was, as far as anybody knows, born in Ghent.\nLate.\n"
    known = {"The", "first", "line", "of", "it", ".", "Early", "life", "He", "was", ",", "born", "in", "Late"}
    assert written(article, known).split("\n") == [
        " The first line of it . ",
        " = = Early life = = ",
        " He was , <unk> <unk> <unk> <unk> <unk> , born in <unk> . ",
        " Late . ",
        "",
    ]


class Texts(Source):
    def __init__(self, name, *texts):
        self.name, self.texts = name, texts

    def fingerprint(self, split):
        return {"texts": [split, *self.texts]}

    def documents(self, split):
        return list(self.texts)


def test_a_source_is_written_in_the_words_of_another():
    source = AsWikitext(Texts("raw", "The dog sat.", "A cat."), Texts("wikitext", " The cat sat . \n"))
    assert list(source.documents("train")) == [" The <unk> sat . \n", " <unk> cat . \n"]
    assert source.name == "raw written as wikitext"
    other = AsWikitext(Texts("raw", "The dog sat.", "A cat."), Texts("wikitext", " The dog . \n"))
    assert other.fingerprint("train") != source.fingerprint("train")
