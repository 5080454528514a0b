"""Edit distance in tokens over the source's length."""

from __future__ import annotations

from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.metrics.edits import edit_counts, edit_distance, edit_ratios

TOKENS = st.lists(st.sampled_from("abc"), max_size=6)


def test_the_ratio_is_over_the_source_and_a_copy_has_none():
    assert edit_ratios([["a", "b"], ["a", "b"], []], [["a", "b"], ["a", "x", "b", "y"], []]).tolist() == [0, 1, 0]
    assert edit_ratios([[]], [["a", "b"]]).tolist() == [2]
    assert edit_distance([5, 7, 9], [5, 9]) == 1


@given(TOKENS, TOKENS)
@settings(deadline=None, max_examples=100)
def test_the_distance_is_levenshteins(left, right):
    @cache
    def naive(i, j):
        if not i or not j:
            return i + j
        return min(naive(i - 1, j) + 1, naive(i, j - 1) + 1, naive(i - 1, j - 1) + (left[i - 1] != right[j - 1]))

    assert edit_distance(left, right) == naive(len(left), len(right)) == edit_distance(right, left)


def test_edits_are_the_places_where_an_output_departs_from_its_source():
    source = ["She", "go", "to", "the", "big", "school", "every", "days", "."]
    outputs = [
        "She go to the big school every days .",
        "She goes to school every day .",  # replaced, left out, replaced
        "Yesterday , she went to the big school every days .",  # neighbouring changes are one
        "",
    ]
    assert edit_counts([source] * 4, [text.split() for text in outputs]).tolist() == [0, 3, 1, 1]
