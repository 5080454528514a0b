"""Pairs of id sequences on disk, and batches of pairs of similar length."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from harness.common.files import arrays_digest
from harness.common.sequences import ReadSequence

_POOL = 4096  # pairs sorted by length together: enough for tight batches, few enough to stay shuffled

Pair = tuple[list[int], list[int]]


class Pairs(ReadSequence[Pair]):
    """Source and target ids of n pairs, each side one flat int32 array [ids] with offsets int64 [n + 1]."""

    def __init__(self, sides: tuple[NDArray[np.int32], ...], offsets: tuple[NDArray[np.int64], ...]) -> None:
        self._sides = sides
        self._offsets = offsets

    @classmethod
    def write(cls, folder: Path, pairs: Iterable[tuple[Sequence[int], Sequence[int]]]) -> Pairs:
        """Write pairs into an existing folder and open them."""
        columns = list(zip(*pairs, strict=True)) or [(), ()]
        for name, column in zip(("source", "target"), columns, strict=True):
            flat = [np.asarray(ids, np.int32) for ids in column]
            np.save(folder / f"{name}.npy", np.concatenate(flat) if flat else np.empty(0, np.int32))
            np.save(folder / f"{name}_offsets.npy", np.cumsum([0, *map(len, column)], dtype=np.int64))
        return cls.open(folder)

    @classmethod
    def open(cls, folder: Path) -> Pairs:
        """Memory-map what `write` wrote."""
        names = ("source", "target")
        return cls(
            tuple(np.load(folder / f"{name}.npy", mmap_mode="r") for name in names),
            tuple(np.load(folder / f"{name}_offsets.npy") for name in names),
        )

    @property
    def hash(self) -> str:
        """SHA-256 (20 hex digits) of all ids and the pairs' offsets."""
        return arrays_digest(*self._offsets, *self._sides)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Ids of source and target of each pair: int64 [n, 2]."""
        return np.stack([np.diff(offsets) for offsets in self._offsets], axis=1)

    def __len__(self) -> int:
        return len(self._offsets[0]) - 1

    def item(self, number: int) -> Pair:
        source, target = (
            side[offsets[number] : offsets[number + 1]].tolist()
            for side, offsets in zip(self._sides, self._offsets, strict=True)
        )
        return source, target


def length_batches(lengths: NDArray[np.int64], ids: int, longest: int, seed: int) -> Callable[[int], NDArray[np.int64]]:
    """A function from a step to the pair numbers of its batch.

    Every epoch shuffles the pairs, sorts pools of them by length, cuts the pools into batches of at most `ids` padded
    ids on the longer side, and shuffles the batches. Pairs with more than `longest` ids on a side are left out.
    Raises `ValueError` when none is left.
    """
    longer = lengths.max(axis=1)
    usable = np.flatnonzero((longer <= min(longest, ids)) & (lengths.min(axis=1) > 0))
    if not len(usable):
        raise ValueError(f"none of {len(lengths)} pairs has between 1 and {min(longest, ids)} ids on both sides")
    epochs: list[list[NDArray[np.int64]]] = []
    ends: list[int] = []

    def at(step: int) -> NDArray[np.int64]:
        while not ends or step >= ends[-1]:
            rng = np.random.default_rng([seed, len(ends)])
            order = usable[rng.permutation(len(usable))]
            batches = [
                batch
                for start in range(0, len(order), _POOL)
                for batch in _cut(order[start : start + _POOL], longer, ids)
            ]
            epochs.append([batches[n] for n in rng.permutation(len(batches))])
            ends.append((ends[-1] if ends else 0) + len(batches))
        epoch = int(np.searchsorted(ends, step, side="right"))
        return epochs[epoch][step - (ends[epoch - 1] if epoch else 0)]

    return at


def _cut(pool: NDArray[np.int64], longer: NDArray[np.int64], ids: int) -> list[NDArray[np.int64]]:
    """Batches of one pool, shortest first, of at most `ids` padded ids each."""
    pool = pool[np.argsort(longer[pool], kind="stable")]
    batches, start = [], 0
    for end in range(1, len(pool) + 1):
        if end == len(pool) or (end + 1 - start) * longer[pool[end]] > ids:
            batches.append(pool[start:end])
            start = end
    return batches


def padded(rows: Sequence[Sequence[int]], pad: int) -> NDArray[np.int64]:
    """Rows of ids as int64 [n, longest], filled with `pad` on the right."""
    filled = np.full((len(rows), max(map(len, rows), default=0)), pad, np.int64)
    for row, ids in zip(filled, rows, strict=True):
        row[: len(ids)] = ids
    return filled
