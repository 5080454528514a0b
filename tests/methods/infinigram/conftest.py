"""Indexes of small documents, built by every test of the engine."""

from __future__ import annotations

import pytest

from methods.infinigram.build import build_index

ALPHABET = 4


def built(folder, documents, vocabulary_size=ALPHABET, **options):
    return build_index(documents, folder, vocabulary_size=vocabulary_size, **options)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    root, numbers = tmp_path_factory.mktemp("indexes"), iter(range(1 << 30))
    return lambda: root / f"index{next(numbers)}"


@pytest.fixture
def small(place):
    return built(place(), [[0, 1, 2], [3]], tokenizer_hash="one")
