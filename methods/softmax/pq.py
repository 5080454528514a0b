"""Product quantisation (Jégou et al., 2011) with 4-bit codes: previews of all logits by table look-ups in registers.

A word's row [w; b] is cut into parts, each coded as one of 16 centres. A context's products with the centres are
computed once; a preview is the sum of a word's entries (faiss's FastScan; André et al., 2015). The best are scored
exactly.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from harness.common.errors import RequestError
from harness.contracts import Artifacts, OutputLayer
from harness.plan.registry import method
from methods.softmax import arrays
from methods.softmax.candidates import CandidateSearch, costs, read
from methods.softmax.inputs import checked_layer, not_finite

CENTRES = 16  # of a part: 4 bits


@method(
    "pq",
    contract="softmax-screening",
    baseline="exact",
    summary="previews by 4-bit product quantisation (faiss's FastScan), exact scores of the best",
)
class ProductQuantised(CandidateSearch):
    """Knobs: `width`, numbers of a row in one part, and `refined`, words scored exactly (k if that is more). Errors as
    for `CandidateSearch`; of `fit`: a layer of fewer words than a part has centres. A call runs on one thread, whatever
    the number of threads: faiss shares out queries, not words."""

    width: Annotated[int, Field(ge=1)] = 4
    refined: Annotated[int, Field(ge=1)] = 2000

    @property
    def random_fit(self) -> bool:
        return True

    def fit(
        self, layer: OutputLayer, contexts: NDArray[np.float32], targets: NDArray[np.int64], artifacts: Artifacts
    ) -> None:
        layer = checked_layer(layer)
        if len(layer.weight) < CENTRES:
            raise RequestError(f"pq needs a layer of at least {CENTRES} words, given {len(layer.weight)}")

        def build(folder: Path) -> None:
            import faiss

            points = np.column_stack([layer.weight, layer.bias])
            points = np.pad(points, ((0, 0), (0, -points.shape[1] % self.width)))
            parts = points.shape[1] // self.width
            index: Any = faiss.IndexPQFastScan(points.shape[1], parts, 4, faiss.METRIC_INNER_PRODUCT)
            index.train(points)
            index.add(points)
            faiss.write_index(index, str(folder / "codes.faiss"))

        key = {"layer": arrays.content(layer.weight, layer.bias), "width": self.width}
        artifacts.build("pq-codes", key, build)

    def open(self, subject: OutputLayer, artifacts: Artifacts) -> None:
        import faiss

        self._prepare(subject, np.arange(len(subject.weight), dtype=np.int32))
        words, dimension = self._layer.weight.shape
        self._path = artifacts.path("pq-codes") / "codes.faiss"
        self._index = cast(Any, faiss.read_index(str(self._path)))
        self._query = np.zeros((1, self._index.d), np.float32)
        self._query[0, dimension] = 1  # the bias
        self._n = min(self.refined, words)
        self.topk(np.zeros(dimension, np.float32), 1)

    def _find(self, context: NDArray[np.float32]) -> int:
        return self._find_at_least(context, 1)

    def _find_at_least(self, context: NDArray[np.float32], k: int) -> int:
        if not np.isfinite(context).all():
            raise not_finite()
        self._query[0, : len(context)] = context
        wanted = max(k, self._n)
        found = self._index.search(self._query, wanted)[1][0]
        found = found[found >= 0]
        self._ids[: len(found)] = found
        # too few where previews are equal, as those of a context of zeros: faiss cannot put them into 8 bits
        return wanted if len(found) == wanted else self._more(len(found), wanted)

    def counters(self) -> dict[str, float]:
        """multiply_adds: the additions of a preview count as such."""
        words, dimension = self._layer.weight.shape
        parts = self._index.d // self.width
        held = float(self._path.stat().st_size)
        scored = self._n * dimension
        return costs(CENTRES * self._index.d + words * parts + scored, self._n, held, held + read(scored, self._n))
