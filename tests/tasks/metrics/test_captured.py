"""Sequences predicted without a search, against a search through all of them one by one."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.contracts import TokenScores
from tasks.metrics.captured import likeliest, longest, occurs


def answered(searched, p_auto):
    series = {"searched": np.array(searched, bool), "p_auto": np.array(p_auto, float)}
    return TokenScores(np.zeros(len(searched)), {}, series)


PLACE = st.tuples(st.integers(0, 2), st.booleans(), st.sampled_from([0.0, 0.1, 0.5]))
STREAM = st.lists(PLACE, max_size=12)


@settings(deadline=None)
@given(st.lists(STREAM, max_size=3), st.integers(1, 4))
def test_the_likeliest_are_those_that_a_scan_finds(texts, length):
    streams = [np.array([9, *(token for token, _, _ in text)]) for text in texts]
    answers = [answered([s for _, s, _ in text], [p for _, _, p in text]) for text in texts]
    places = {}  # of each sequence: (mean, stream, start)
    for number, text in enumerate(texts):
        for start in range(len(text) - length + 1):
            part = text[start : start + length]
            if not any(searched or not p for _, searched, p in part):
                mean = math.fsum(math.log(p) for _, _, p in part) / length
                places.setdefault(tuple(token for token, _, _ in part), []).append((mean, number, start))
    found = likeliest(streams, answers, length)
    assert len({one.ids for one in found}) == len(found)
    assert all(any(math.isclose(one.log_p, mean, abs_tol=1e-9) for mean, _, _ in places[one.ids]) for one in found)
    assert all(before.log_p >= after.log_p for before, after in pairwise(found))
    for ids, every in places.items():  # each place is shown, or is equal to or overlaps with one as likely that is
        for mean, number, start in every:
            before = [one for one in found if one.log_p >= mean - 1e-9]
            assert any(one.ids == ids for one in before) or any(
                other == number and abs(start - at) < length for one in before for _, other, at in places[one.ids]
            ), (ids, mean)


def test_a_place_that_overlaps_with_a_likelier_one_does_not_count_for_its_equals():
    found = likeliest([np.array([9, 1, 0, 0, 0])], [answered([False] * 4, [0.5, 0.5, 0.1, 0.1])], 2)
    assert [one.ids for one in found] == [(1, 0), (0, 0)]
    assert np.allclose([one.log_p for one in found], [math.log(0.5), math.log(0.1)])


def test_of_overlapping_ones_the_likeliest_is_shown():
    streams = [np.array([0, 1, 2, 3, 4, 5])]
    found = likeliest(streams, [answered([False] * 5, [0.5, 0.9, 0.9, 0.5, 0.5])], 2)
    assert [one.ids for one in found] == [(2, 3), (4, 5)]


def test_the_longest_is_without_a_search():
    streams = [np.array([0, 1, 2, 3, 4]), np.array([0, 5, 6, 7, 8])]
    some = [answered([True, False, False, True], [1] * 4), answered([False, True, False, False], [1] * 4)]
    assert longest(streams, some) == (2, 3)
    assert longest([streams[0]], [answered([True] * 4, [1] * 4)]) == ()


def test_ids_occur_where_they_stand_in_one_stream_in_this_order():
    streams = [np.array([1, 2, 3]), np.array([256, 0, 1])]
    assert occurs([2, 3], streams) and occurs([256, 0, 1], streams)
    assert not occurs([3, 256], streams) and not occurs([3, 2], streams)
    assert not occurs([1 << 32], [np.array([0, 1])])  # its bytes are there, but not as one id
