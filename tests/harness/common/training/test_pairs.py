"""Pairs on disk and their batches."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.common.training.pairs import Pairs, length_batches, padded


def test_pairs_come_back_from_disk(tmp_path):
    given_pairs = [([1, 2, 3], [4]), ([5], [6, 7]), ([], [8])]
    pairs = Pairs.write(tmp_path, given_pairs)
    assert list(pairs) == given_pairs
    assert pairs[-1] == ([], [8])
    assert pairs[:2] == given_pairs[:2]
    assert pairs.lengths.tolist() == [[3, 1], [1, 2], [0, 1]]
    assert list(Pairs.open(tmp_path)) == given_pairs


def test_no_pairs_are_pairs_too(tmp_path):
    assert list(Pairs.write(tmp_path, [])) == []


@settings(deadline=None, max_examples=30)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=60),
    ids=st.integers(30, 90),
    seed=st.integers(0, 9),
)
def test_an_epoch_takes_every_pair_once_in_batches_of_bounded_size(lengths, ids, seed):
    table = np.array(lengths)
    at = length_batches(table, ids, longest=30, seed=seed)
    seen: list[int] = []
    step = 0
    while len(seen) < len(table):
        batch = at(step)
        assert len(batch) * table[batch].max() <= ids
        seen += batch.tolist()
        step += 1
    assert sorted(seen) == list(range(len(table)))
    again = length_batches(table, ids, longest=30, seed=seed)
    later = [again(n).tolist() for n in reversed(range(step + 3))]  # a function of the step alone
    assert later == [at(n).tolist() for n in reversed(range(step + 3))]


def test_long_and_empty_pairs_are_left_out():
    table = np.array([[5, 5], [50, 5], [5, 0], [6, 6]])
    at = length_batches(table, ids=100, longest=10, seed=0)
    assert sorted(at(0).tolist()) == [0, 3]
    with pytest.raises(ValueError, match="none of 4 pairs"):
        length_batches(table, ids=100, longest=4, seed=0)


def test_padding_is_on_the_right():
    np.testing.assert_array_equal(padded([[1, 2], [3]], 9), [[1, 2], [3, 9]])
