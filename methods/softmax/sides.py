"""The two sides from which candidate words are found: clusters of the layer's rows, and clusters of contexts.

Both are learned once, as artifacts, and searched in the same way: the product of a context with all cluster centres,
held as int8, and the words of the clusters with the largest products.

- Clusters of rows need no training text. They find words with similar rows, seen in training or not.
- Clusters of contexts know what follows contexts of their kind, but no word that never was in a training top-5.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.common.progress import Progress
from harness.contracts import Artifacts, OutputLayer
from methods.softmax import arrays
from methods.softmax.clusters import BLOCK, assign, spherical_kmeans

PER_CLUSTER = 16  # rows of the k-means sample for each cluster of rows
STEPS = 8  # of k-means


@dataclass(frozen=True, slots=True)
class Side:
    """Cluster t has centre `centres[t]` int8 [d], whose product with a context is multiplied by `scales[t]` and added
    to `offsets[t]`, and the words `members[starts[t] : starts[t + 1]]`."""

    centres: NDArray[np.int8]
    scales: NDArray[np.float32]
    offsets: NDArray[np.float32]
    starts: NDArray[np.int64]
    members: NDArray[np.int32]

    @classmethod
    def of(
        cls, centres: NDArray[np.float32], offsets: NDArray[np.float32], words: NDArray[Any], owners: NDArray[np.int64]
    ) -> Side:
        """centres [r, d]; offsets [r]; words [m], each in the cluster owners [m], ascending."""
        rows, scales = arrays.in_int8(centres)
        starts = np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=len(centres)))])
        return cls(rows, scales, offsets, starts, words.astype(np.int32))

    @classmethod
    def load(cls, folder: Path) -> Side:
        return cls(**arrays.load(folder))

    def save(self, folder: Path) -> None:
        arrays.save(folder, {name: getattr(self, name) for name in self.__slots__})


def row_side(layer: OutputLayer, words: int, even: bool, seed: int, artifacts: Artifacts) -> Path:
    """Clusters of the layer's rows by spherical k-means, with a mean of `words` rows, as an artifact. The product with
    a centre is the mean logit of the cluster's words.

    even: no cluster has more than `words` rows, as in FlashHead (arXiv 2603.14591), so that each costs the same to
    score. Rows that find no room in their cluster go to another.
    """
    clusters = -(-len(layer.weight) // words)

    def cluster(folder: Path) -> None:
        rng = np.random.default_rng(seed)
        directions = spherical_kmeans(layer.weight, clusters, STEPS, PER_CLUSTER * clusters, rng)
        arrays.save(folder, {"directions": directions})

    def build(folder: Path) -> None:
        directions = arrays.load(found)["directions"]
        owner = balanced(layer.weight, directions, words) if even else assign(layer.weight, directions)
        order = np.argsort(owner, kind="stable")
        points = np.column_stack([layer.weight[order], layer.bias[order]])
        kept, starts, sizes = np.unique(owner[order], return_index=True, return_counts=True)
        means = (np.add.reduceat(points, starts, axis=0) / sizes[:, None]).astype(np.float32)
        Side.of(means[:, :-1], means[:, -1], order, np.repeat(np.arange(len(kept)), sizes)).save(folder)

    key = {"layer": arrays.content(layer.weight, layer.bias), "words": words, "seed": seed, "steps": STEPS}
    found = artifacts.build("row-directions", key, cluster)
    return artifacts.build("row-clusters", {**key, "even": even}, build)


def balanced(rows: NDArray[np.float32], centres: NDArray[np.float32], most: int) -> NDArray[np.int64]:
    """The cluster of each row [n], int64 [n], by largest product with the centres [r, d], at most `most` rows each.

    In turns, every row without a cluster asks for the best that has room, which takes those with the largest products.
    """
    owner = np.full(len(rows), -1)
    room = np.full(len(centres), most)
    progress = Progress()
    while len(left := np.flatnonzero(owner < 0)):
        progress.update("balanced clusters of rows", len(rows) - len(left), len(rows), "rows")
        free = np.flatnonzero(room)
        wanted, product = np.empty(len(left), np.int64), np.empty(len(left), np.float32)
        for start in range(0, len(left), BLOCK):
            products = rows[left[start : start + BLOCK]] @ centres[free].T
            best = products.argmax(axis=1)
            wanted[start : start + BLOCK] = free[best]
            product[start : start + BLOCK] = products[np.arange(len(best)), best]
        order = np.lexsort((-product, wanted))
        asked = wanted[order]
        turn = np.arange(len(asked)) - np.searchsorted(asked, asked)  # place of a row among those of its cluster
        taken = order[turn < room[asked]]
        owner[left[taken]] = wanted[taken]
        room -= np.bincount(wanted[taken], minlength=len(room))
    return owner


def context_side(
    contexts: NDArray[np.float32], labels: NDArray[np.int32], clusters: int, seed: int, data: dict[str, Any],
    artifacts: Artifacts,
) -> Path:  # fmt: skip
    """Clusters of contexts [n, d] by spherical k-means, each with all words that are in the exact top-5 (labels [n, 5])
    of one of its contexts, as an artifact. data: the key of contexts and labels."""

    def build(folder: Path) -> None:
        centres = spherical_kmeans(contexts, clusters, STEPS, len(contexts), np.random.default_rng(seed))
        words = int(labels.max()) + 1
        pairs = np.unique(assign(contexts, centres)[:, None] * words + labels)
        Side.of(centres, np.zeros(clusters, np.float32), pairs % words, pairs // words).save(folder)

    return artifacts.build("context-clusters", {**data, "clusters": clusters, "seed": seed, "steps": STEPS}, build)
