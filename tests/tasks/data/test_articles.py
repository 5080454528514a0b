"""Where articles of WikiText begin, and how their words are counted."""

from __future__ import annotations

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
