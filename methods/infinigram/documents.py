"""Documents that hold an AND of ORs of n-grams (Liu et al., 2024, section 3.3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from methods.infinigram.answers import Document
from methods.infinigram.ids import flattened
from methods.infinigram.kernels import holding
from methods.infinigram.kernels.searching import find_in
from methods.infinigram.layout import Opened, Shard

Clause = Sequence[NDArray[np.int64]]

_DECODED = 32  # tokens that are compared in the time in which one suffix is decoded and sorted


def find(
    opened: Sequence[Opened], table: NDArray[np.int64], clauses: Sequence[Clause], most: int | None, seed: int
) -> tuple[list[tuple[int, int]], bool]:
    """(row of the shard, document) of the documents that hold an n-gram of every clause, and whether the result may be
    incomplete: a clause with more than `most` matches in a shard is sampled. Documents equal to a subtracted one, token
    for token, are left out. table: of the shards, as in `kernels.columns`.

    Clauses are taken from the rarest on. One is looked for in the documents that hold those before it if few tokens
    have to be compared, else its own matches are decoded."""
    rng, approximate = np.random.default_rng(seed), False
    found: list[tuple[int, int]] = []
    for row, (one, addresses) in enumerate(zip(opened, table, strict=True)):
        ranges = [np.array([find_in(addresses, ngram) for ngram in clause]) for clause in clauses]
        totals = [int((part[:, 1] - part[:, 0]).sum()) for part in ranges]
        limit = most if one.sign > 0 else None  # of subtracted documents all are needed
        documents: NDArray[np.int64] | None = None
        for number in np.argsort(totals, kind="stable").tolist():
            total = totals[number]
            read = total if limit is None else min(total, limit)
            if documents is None and read == total and len(one.shard.documents) < _DECODED * read:
                documents = np.arange(len(one.shard.documents) - 1)
            if documents is not None and _compared(one.shard, documents, total) <= _DECODED * read:
                documents = documents[holding.hold(addresses, documents, *flattened(clauses[number]))]
                continue
            approximate |= read < total
            ranks = [_ranks(low, high, read, total, rng) for low, high in ranges[number].tolist()]
            held = _holders(one.shard, holding.positions(addresses, np.concatenate(ranks)))
            documents = held if documents is None else np.intersect1d(documents, held, assume_unique=True)
        assert documents is not None
        found += [(row, number) for number in documents.tolist()]
    return _without_subtracted(opened, found), approximate


def _compared(shard: Shard, documents: NDArray[np.int64], total: int) -> float:
    """Tokens of documents that are compared until a match is found, if `total` matches are spread evenly."""
    lengths = shard.documents[documents + 1] - shard.documents[documents]
    distance = len(shard.tokens) / max(total, 1)
    return float((distance * -np.expm1(-lengths / distance)).sum())


def _ranks(low: int, high: int, read: int, total: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Suffixes low .. high - 1, or their part of a sample of `read` of `total`."""
    if read == total:
        return np.arange(low, high)
    return low + rng.choice(high - low, min(high - low, -(-read * (high - low) // total)), replace=False)


def _holders(shard: Shard, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """The documents at these positions, ascending, each once."""
    positions.sort()
    if len(positions) > len(shard.documents):
        return np.flatnonzero(np.diff(np.searchsorted(positions, shard.documents)))
    documents = np.searchsorted(shard.documents, positions, side="right") - 1
    return documents[np.diff(documents, prepend=-1) > 0]


def _without_subtracted(opened: Sequence[Opened], found: list[tuple[int, int]]) -> list[tuple[int, int]]:
    if all(one.sign > 0 for one in opened):
        return found
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


class Shown:
    """Shows documents with the part of their text around a match of these n-grams."""

    def __init__(self, ngrams: Sequence[NDArray[np.int64]], window: int) -> None:
        asked = [ngram for ngram in ngrams if len(ngram)]
        self._ngrams, self._longest = flattened(asked), max(map(len, asked), default=0)
        self._window = window

    def __call__(self, opened: Opened, row: NDArray[np.int64], number: int, position: int | None = None) -> Document:
        """The document. row: of its shard in the engine's table. position: of the match; by default the first."""
        shard = opened.shard
        low, high = shard.documents[number : number + 2].tolist()
        high = min(high, len(shard.tokens)) - 1
        if position is None:
            first_match = holding.matches(row, low, high, *self._ngrams, 1)
            position = int(first_match[0]) if len(first_match) else low
        begin, end = max(position - self._window, low), min(position + self._longest + self._window, high)
        matches = [at - low for at in holding.matches(row, begin, end, *self._ngrams, end).tolist()]
        lines = 0
        if len(shard.lines):
            first, last = np.searchsorted(shard.lines, low), np.searchsorted(shard.lines, position, side="right")
            lines = int(last - first)
        return Document(
            opened.folder, opened.number, number, high - low, matches, begin - low, shard.tokens[begin:end].tolist(),
            lines, shard.line(number),
        )  # fmt: skip
