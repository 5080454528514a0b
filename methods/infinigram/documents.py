"""Documents that hold an AND of ORs of n-grams (Liu et al., 2024, section 3.3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from methods.infinigram.answers import Document
from methods.infinigram.kernels.followers import positions
from methods.infinigram.kernels.searching import find_in
from methods.infinigram.layout import Opened, Shard

if TYPE_CHECKING:
    from numpy.typing import NDArray


def find(
    opened: Sequence[Opened], table: NDArray[np.int64], clauses: Sequence[Sequence[NDArray[np.int64]]],
    most: int | None, seed: int,
) -> tuple[list[tuple[int, int]], bool]:  # fmt: skip
    """(row of the shard, document) of the documents that hold an n-gram of every clause, and whether the result may be
    incomplete: a clause with more than `most` matches in a shard is sampled. Documents equal to a subtracted one, token
    for token, are left out. table: of the shards, as in `kernels.columns`."""
    rng, approximate = np.random.default_rng(seed), False
    found: list[tuple[int, int]] = []
    for row, (one, addresses) in enumerate(zip(opened, table, strict=True)):
        documents: NDArray[np.int64] | None = None
        for clause in clauses:
            places, sampled = _places(addresses, clause, most if one.sign > 0 else None, rng)  # subtracted: all
            approximate |= sampled
            holding = np.unique(np.searchsorted(one.shard.documents, places, side="right") - 1)
            documents = holding if documents is None else np.intersect1d(documents, holding)
        assert documents is not None
        found += [(row, int(number)) for number in documents]
    return _without_subtracted(opened, found), approximate


def _places(
    row: NDArray[np.int64], clause: Sequence[NDArray[np.int64]], most: int | None, rng: np.random.Generator
) -> tuple[NDArray[np.int64], bool]:
    """Positions at which the n-grams of a clause begin in the shard of this table row, and whether they are a sample.
    More than `most` positions are sampled."""
    ranges = [find_in(row, ngram) for ngram in clause]
    total = int(sum(high - low for low, high in ranges))
    sampled = most is not None and total > most
    parts = []
    for low, high in ranges:
        places = positions(row, low, high)
        if sampled and most is not None:
            places = rng.choice(places, min(len(places), -(-most * len(places) // total)), replace=False)
        parts.append(places)
    return np.concatenate(parts), sampled


def _without_subtracted(opened: Sequence[Opened], found: list[tuple[int, int]]) -> list[tuple[int, int]]:
    removed: dict[bytes, int] = {}
    for row, number in found:
        if opened[row].sign < 0:
            text = text_of(opened[row].shard, number).tobytes()
            removed[text] = removed.get(text, 0) + 1
    kept = []
    for row, number in found:
        if opened[row].sign > 0:
            text = text_of(opened[row].shard, number).tobytes() if removed else b""
            if removed.get(text, 0) > 0:
                removed[text] -= 1
            else:
                kept.append((row, number))
    return kept


def text_of(shard: Shard, number: int) -> NDArray[Any]:
    """The tokens of a document."""
    return shard.tokens[shard.documents[number] : shard.documents[number + 1] - 1]


def shown(opened: Opened, number: int, ngrams: Sequence[NDArray[np.int64]], window: int) -> Document:
    """A document with the part of its text around the first of these n-grams."""
    text = text_of(opened.shard, number).astype(np.int64)
    matches = sorted({at for ngram in ngrams for at in _occurrences(text, ngram)})
    first, length = (matches[0] if matches else 0), max((len(ngram) for ngram in ngrams), default=0)
    begin = max(first - window, 0)
    tokens = text[begin : first + length + window].tolist()
    return Document(
        opened.folder, opened.number, number, len(text), matches, begin, tokens, opened.shard.line(number)
    )  # fmt: skip


def _occurrences(text: NDArray[np.int64], ngram: NDArray[np.int64]) -> list[int]:
    """Positions at which an n-gram begins in a text."""
    if not len(ngram) or len(ngram) > len(text):
        return []
    windows = np.lib.stride_tricks.sliding_window_view(text, len(ngram))
    found: list[int] = np.flatnonzero((windows == ngram).all(1)).tolist()
    return found
