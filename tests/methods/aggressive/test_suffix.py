"""The unique suffix match against its definition."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from methods.aggressive.suffix import SuffixMatch

TOKENS = st.integers(0, 3)


def by_definition(source, output, framed):
    """Algorithm 1, line 3, literally: the longest suffix of the output that occurs exactly once in the source."""
    source, output = (["start", *source], ["start", *output]) if framed else (list(source), list(output))
    for length in range(len(output), 0, -1):
        suffix = output[len(output) - length :]
        ends = [end for end in range(length, len(source) + 1) if source[end - length : end] == suffix]
        if len(ends) == 1:
            return source[ends[0] :]
    return []


@settings(deadline=None, max_examples=300)
@given(source=st.lists(TOKENS, max_size=12), output=st.lists(TOKENS, max_size=12), framed=st.booleans())
def test_the_match_is_the_longest_suffix_that_occurs_once(source, output, framed):
    match = SuffixMatch(source, framed)
    for length in range(len(output) + 1):
        assert continuation(match) == by_definition(source, output[:length], framed)
        match.extend(output[length : length + 1])


def continuation(match):
    place = match.unique()
    return list(match.source[place:]) if place is not None else []


def test_the_first_step_drafts_the_whole_source_even_if_the_source_holds_the_start_token():
    start = 2
    assert continuation(SuffixMatch([5, start, 6, start], framed=True)) == [5, start, 6, start]


def test_a_prompt_has_no_start_sentinel():
    assert SuffixMatch([5, 6], framed=False).unique() is None


def test_nothing_follows_the_last_token():
    match = SuffixMatch([5, 6, 7], framed=True)
    match.extend([5, 6, 7])
    assert continuation(match) == []
