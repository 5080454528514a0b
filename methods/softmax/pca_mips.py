"""PCA-MIPS (Bachrach et al., 2014): a tree that splits the words at the median of one principal component per level.

Words become points of equal length (`reduction`); the query is scaled to that length. A query descends to one leaf of
L / 2^depth words. With `neighbourhood` it also visits the leaves that differ in one turn ("neighbourhood boosting").
All words of the visited leaves are scored exactly.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from harness.common.errors import RequestError
from harness.contracts import OutputLayer
from harness.plan.registry import method
from methods.softmax import reduction
from methods.softmax.candidates import SavedSearch
from methods.softmax.completion import principal_directions
from methods.softmax.kernels import compiled


@method(
    "pca-mips",
    contract="softmax-screening",
    baseline="exact",
    summary="leaves of a principal-component tree (Bachrach et al., 2014)",
)
class PcaMips(SavedSearch):
    """Knobs: `depth` of the tree, `neighbourhood` (visit leaves one turn away). Errors as for `CandidateSearch`;
    of `fit`: a depth that leaves no word a leaf or is above d."""

    name = "pca-mips"

    depth: Annotated[int, Field(ge=1)] = 5
    neighbourhood: bool = True

    def _check(self, words: int, dimension: int) -> None:
        if 2**self.depth > words or self.depth > dimension:
            raise RequestError(f"depth {self.depth} is too deep for {words} words in {dimension} dimensions; lower it")

    def _made(self, layer: OutputLayer) -> dict[str, NDArray[Any]]:
        return grow(reduction.points(layer), self.depth)

    def _key(self) -> dict[str, Any]:
        return {"depth": self.depth}

    def _scratch_of(self, words: int, dimension: int) -> None:
        self._length = float(self._saved["length"][0])
        self._query = np.empty(dimension + 2, np.float32)

    def _find(self, context: NDArray[np.float32]) -> int:
        query = reduction.query(context, self._query)
        query *= self._length / np.sqrt(query @ query)
        tree = self._saved
        count: int = visit(
            tree["directions"] @ query, tree["thresholds"], tree["order"], tree["bounds"], self.neighbourhood, self._ids
        )
        return count

    def counters(self) -> dict[str, float]:
        return self._counted(self.depth * (self._layer.weight.shape[1] + 2))


def grow(points: NDArray[np.float32], depth: int) -> dict[str, NDArray[Any]]:
    """The tree over points [L, D] of equal length: `directions` [depth, D] (one principal component per level),
    `thresholds` [2^depth - 1] in heap order, leaf i = `order`[bounds[i] : bounds[i + 1]], `length` of the points."""
    directions = principal_directions(points - points.mean(axis=0))[:depth]
    projections = points @ directions.T
    thresholds = np.zeros(2**depth - 1, np.float32)
    order = np.arange(len(points), dtype=np.int32)
    bounds = np.array([0, len(points)])
    for level in range(depth):
        cuts = []
        for node, (start, stop) in enumerate(pairwise(bounds)):
            part = order[start:stop]
            part = part[np.argsort(projections[part, level], kind="stable")]
            order[start:stop] = part
            half = (stop - start) // 2
            middle = projections[part[[max(half - 1, 0), half]], level]
            thresholds[2**level - 1 + node] = middle.mean()
            cuts.append(start + half)
        bounds = np.sort(np.concatenate([bounds, cuts]))
    length = np.linalg.norm(points[:1], axis=1)
    return {"directions": directions, "thresholds": thresholds, "order": order, "bounds": bounds, "length": length}


@compiled
def visit(projected, thresholds, order, bounds, neighbourhood, out_ids):  # type: ignore[no-untyped-def]
    """Words of the query's leaf and, with `neighbourhood`, of the leaves one turn away, into out_ids int32."""
    depth = len(projected)
    count = 0
    for turned in range(-1, depth if neighbourhood else 0):
        node = 0
        for level in range(depth):
            right = projected[level] >= thresholds[node]
            if level == turned:
                right = not right
            node = 2 * node + (2 if right else 1)
        leaf = node - (2**depth - 1)
        for i in range(bounds[leaf], bounds[leaf + 1]):
            out_ids[count] = order[i]
            count += 1
    return count
