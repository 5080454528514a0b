"""Running text to tokens as the shared tasks have them."""

from __future__ import annotations

import pytest

from tasks.data.corruption import sentences, tokens
from tasks.data.corruption.tokens import split


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It doesn't work, does it?", "It does n't work , does it ?"),
        ("The dogs' owner's car isn't here.", "The dogs ' owner 's car is n't here ."),
        ("We've well-known 19th-century prices of 1,000.5 dollars.",
         "We 've well-known 19th-century prices of 1,000.5 dollars ."),
        ("He said “no” (twice); Mr. Smith left the U.S. in May.",
         'He said " no " ( twice ) ; Mr. Smith left the U.S. in May .'),
        ("It grew by 5% in 1998.", "It grew by 5 % in 1998 ."),
        ("", ""),
    ],
)  # fmt: skip
def test_marks_and_contractions_stand_alone(text, expected):
    assert tokens(text) == expected.split()


def test_paragraphs_are_cut_at_sentence_ends_only():
    text = 'Dr. J. Smith met A. Jones at 3.5 p.m. on Monday. "It was late." They left, e.g. by train! Was it?'
    assert list(split(text)) == [
        "Dr. J. Smith met A. Jones at 3.5 p.m. on Monday.", '"It was late."', "They left, e.g. by train!", "Was it?"
    ]  # fmt: skip


def test_headings_and_damaged_sentences_are_left_out():
    text = (
        "Early history.\n"
        "The town lies on a river. It was founded in 1200 (). The mayor ( John lives here. Yes it is.\n"
        "Founded in the year of our Lord 1200 the town lies on a river near the sea\n"
    )
    assert [" ".join(sentence) for sentence in sentences(text)] == ["The town lies on a river .", "Yes it is ."]
