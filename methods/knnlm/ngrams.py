"""Frequencies of n-grams in the reference text, and their numbers of distinct successors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from harness.contracts import Artifacts, Streams
from methods.knnlm.datastore import corpus_hash

ORDERS = (1, 2, 3, 4)
ARTIFACT = "ngram-statistics"
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


class NgramStatistics:
    """Frequencies and numbers of distinct successors of the n-grams, n from 1 to 4, of reference streams. N-grams are
    compared by 64-bit hashes."""

    def __init__(self, folder: Path) -> None:
        self._tables = [
            [np.load(folder / f"{name}{order}.npy", mmap_mode="r") for name in ("hashes", "counts", "distinct")]
            for order in ORDERS
        ]

    def features(self, stream: NDArray[np.int64]) -> NDArray[np.float32]:
        """For each predicted token of a stream [T], log(1 + frequency) and log(1 + distinct successors) of the n-grams
        before it: float32 [T - 1, 8]. 0 for n-grams that would begin before the stream."""
        found = np.zeros((max(len(stream) - 1, 0), 2 * len(ORDERS)), np.float32)
        for column, (order, (hashes, counts, distinct)) in enumerate(zip(ORDERS, self._tables, strict=True)):
            asked = ngram_hashes(stream[:-1], order)
            if not (len(asked) and len(hashes)):
                continue
            at = np.minimum(np.searchsorted(hashes, asked), len(hashes) - 1)
            known = hashes[at] == asked
            found[order - 1 :, 2 * column] = np.log1p(np.where(known, counts[at], 0))
            found[order - 1 :, 2 * column + 1] = np.log1p(np.where(known, distinct[at], 0))
        return found


def ngram_hashes(tokens: NDArray[np.int64], order: int) -> NDArray[np.uint64]:
    """Hashes of the n-grams that end at tokens order - 1, order, ...: uint64 [T - order + 1]."""
    count = max(len(tokens) - order + 1, 0)
    total = np.zeros(count, np.uint64)
    for place in range(order):
        mixed = (total ^ tokens[place : place + count].astype(np.uint64)) + np.uint64(1)
        mixed = (mixed ^ (mixed >> np.uint64(31))) * _MULTIPLIER
        total = mixed ^ (mixed >> np.uint64(29))
    return total


def ngram_statistics(artifacts: Artifacts, reference: Streams) -> None:
    """Build the artifact `ngram-statistics` of reference streams."""

    def fill(folder: Path) -> None:
        for order in ORDERS:
            none = np.empty(0, np.uint64)
            hashes = np.concatenate([none, *(ngram_hashes(stream[:-1], order) for stream in reference)])
            following = np.concatenate([np.empty(0, np.int64), *(stream[order:] for stream in reference)])
            pairs = np.unique(np.stack([hashes, following.astype(np.uint64)], 1), axis=0)
            known, counts = np.unique(hashes, return_counts=True)
            _, distinct = np.unique(pairs[:, 0], return_counts=True)
            for name, array in (("hashes", known), ("counts", counts), ("distinct", distinct)):
                np.save(folder / f"{name}{order}.npy", array)

    artifacts.build(ARTIFACT, {"corpus": corpus_hash(reference)}, fill)
