"""Vectors of a file in memory: once for all who ask, and anew when another file took its name."""

from __future__ import annotations

import numpy as np
import torch

from methods.nearest.scores import open_scores
from methods.nearest.vectors import copied, open_vectors

KEYS = np.arange(12, dtype=np.float16).reshape(4, 3)


def test_vectors_of_one_file_are_in_memory_once(tmp_path):
    np.save(tmp_path / "keys.npy", KEYS)
    one, other = open_vectors(tmp_path / "keys.npy"), open_vectors(tmp_path / "keys.npy")
    held, scores = copied(one), open_scores(one, torch.float32, 1.0)
    assert copied(other) is held
    assert open_scores(other, torch.float32, 1.0) is scores
    assert not np.shares_memory(held, one.keys)
    assert np.array_equal(held, KEYS)


def test_a_file_that_took_the_name_of_another_is_read_anew(tmp_path):
    np.save(tmp_path / "keys.npy", KEYS)
    vectors = open_vectors(tmp_path / "keys.npy")
    held, scores = copied(vectors), open_scores(vectors, torch.float32, 1.0)
    np.save(tmp_path / "other.npy", KEYS + 1)
    (tmp_path / "other.npy").replace(tmp_path / "keys.npy")
    vectors = open_vectors(tmp_path / "keys.npy")
    assert np.array_equal(copied(vectors), KEYS + 1)
    assert np.array_equal(held, KEYS)
    assert open_scores(vectors, torch.float32, 1.0) is not scores


def test_keys_copied_after_another_file_took_the_name_are_those_that_were_opened(tmp_path):
    np.save(tmp_path / "keys.npy", KEYS)
    before = open_vectors(tmp_path / "keys.npy")
    np.save(tmp_path / "other.npy", KEYS + 1)
    (tmp_path / "other.npy").replace(tmp_path / "keys.npy")
    held = copied(before)
    assert np.array_equal(held, KEYS)
    assert np.array_equal(copied(open_vectors(tmp_path / "keys.npy")), KEYS + 1)


def test_a_part_of_a_file_is_not_taken_for_the_whole(tmp_path):
    np.save(tmp_path / "keys.npy", KEYS)
    whole = open_vectors(tmp_path / "keys.npy")
    part = type(whole)(tmp_path, whole.keys[1:], whole.largest_norm)
    held = copied(whole)
    assert np.array_equal(copied(part), KEYS[1:])
    assert np.array_equal(held, KEYS)


def test_vectors_without_a_file_are_not_copied(tmp_path):
    np.save(tmp_path / "keys.npy", KEYS)
    vectors = open_vectors(tmp_path / "keys.npy")
    given = type(vectors)(tmp_path, KEYS, vectors.largest_norm)
    assert copied(given) is KEYS
