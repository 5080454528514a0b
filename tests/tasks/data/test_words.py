"""Words, vocabulary and ids."""

from __future__ import annotations

import numpy as np
import pytest

from harness.common.cache import Cache
from tasks.data.text.kinds import open_source
from tasks.data.words import encode, encoded_split, vocabulary, words


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "data" / "toy"
    folder.mkdir(parents=True)
    (folder / "toy.train.txt").write_text(" a b a c \n\n b a d \n")  # Penn Treebank's way of naming files
    (folder / "toy.valid.txt").write_text(" a x \n")
    (folder / "toy.test.txt").write_text(" c b \n")
    return open_source("folder", "toy", [tmp_path / "data"], Cache(tmp_path / "cache"))


def test_lines_end_in_a_mark_and_blank_lines_give_nothing():
    assert list(words("the cat\n\n sat .\n", tokenised=True)) == ["the", "cat", "<eos>", "sat", ".", "<eos>"]
    assert list(words("Don't stop\n", tokenised=False)) == ["don", "'", "t", "stop", "<eos>"]


def test_the_vocabulary_holds_the_most_frequent_types_and_the_unknown_one(source, tmp_path):
    cache = Cache(tmp_path / "cache")
    assert vocabulary(source, 4, True, cache) == ["a", "<eos>", "b", "<unk>"]
    assert set(vocabulary(source, 100, True, cache)) == {"a", "b", "c", "d", "<eos>", "<unk>"}


def test_words_outside_the_vocabulary_become_unknown(source, tmp_path):
    types = ["a", "<eos>", "b", "<unk>"]
    np.testing.assert_array_equal(encode(["a c b\n"], types, True), [0, 3, 2, 1])
    ids = encoded_split(source, "validation", types, True, Cache(tmp_path / "cache"))
    np.testing.assert_array_equal(ids, [0, 3, 1])
