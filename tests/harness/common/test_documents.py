"""Documents: what counts as an article, a word, the same text."""

from __future__ import annotations

import re

from harness.common.documents import content_hash, word_pattern
from tasks.data.text.articles import articles, count_words

WIKI = [" ", " = Cats = ", " ", " Cats <unk> . ", " ", " = = Food = = ", " ", " = 2 = ", " They eat . "]
WIKI += [" ", " = Dogs = ", " ", " Bark . "]


def test_articles_start_at_level_one_headings_and_keep_every_word() -> None:
    cats, dogs = articles(WIKI)  # " = 2 = " is not a heading: no blank line follows
    assert dogs == " = Dogs =\n\n Bark .\n"
    assert cats.startswith("\n = Cats =\n\n Cats <unk> .\n")
    assert (cats + dogs).split() == " ".join(WIKI).split()
    assert count_words(cats) + count_words(dogs) == len(" ".join(WIKI).split()) + len(WIKI)
    assert articles(["no headings", "here"]) == ["no headings\nhere\n"]
    assert articles([" ", ""]) == []


def test_a_hash_tells_where_documents_end() -> None:
    assert content_hash(iter(["ab", "c"])) == content_hash(["ab", "c"])
    assert len({content_hash(texts) for texts in (["ab", "c"], ["a", "bc"], ["abc"], ["abc", ""], [])}) == 5


def test_a_character_of_a_script_without_blanks_is_a_word() -> None:
    assert re.findall(word_pattern(r"\W", least=2), "I saw 東京 today") == ["saw", "東", "京", "today"]
