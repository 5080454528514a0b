"""Suffix sorting against sorting."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from methods.infinigram.suffixes import suffix_array


def naive(tokens):
    return sorted(range(len(tokens)), key=lambda start: tokens[start:])


@given(st.integers(1, 4).flatmap(lambda size: st.lists(st.integers(0, size - 1), max_size=60)))
@settings(deadline=None, max_examples=100)
def test_small_arrays(tokens):
    for kind in (np.uint16, np.uint32):
        assert suffix_array(np.array(tokens, kind), 4).tolist() == naive(tokens)


@pytest.mark.parametrize("make", [
    lambda rng: rng.integers(0, 3, 5000), lambda rng: np.zeros(3000, int), lambda rng: np.arange(4000) % 7,
    lambda rng: np.tile(rng.integers(0, 50, 300), 12), lambda rng: rng.zipf(1.3, 6000).clip(max=60000),
    lambda rng: np.arange(3000), lambda rng: np.arange(3000)[::-1],
])  # fmt: skip
def test_long_arrays(make):
    tokens = make(np.random.default_rng(0)).astype(np.uint32)
    found = suffix_array(tokens, int(tokens.max()) + 1)
    assert np.array_equal(np.sort(found), np.arange(len(tokens)))
    rank = np.empty(len(tokens) + 1, int)
    rank[found], rank[len(tokens)] = np.arange(len(tokens)), -1
    one, two = found[:-1], found[1:]  # each suffix is below the next: by its token, else by the rank behind it
    assert ((tokens[one] < tokens[two]) | ((tokens[one] == tokens[two]) & (rank[one + 1] < rank[two + 1]))).all()
