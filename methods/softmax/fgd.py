"""FGD (Zhang et al., 2018): the softmax layer's top-k as nearest neighbours on a small-world graph.

An HNSW graph (Malkov and Yashunin, 2016; faiss) is searched for the `neighbours` nearest words, whose logits are then
computed exactly. The paper's graph (`space: reduced`) is over the points of the inner-product-preserving reduction
(`reduction`). The default is a graph over [w; b] by inner product itself (Morozov and Babenko, 2018), because it is by
far the stronger rival: on a PTB-Small layer with a beam of 64, precision@1 is 1.00 against 0.74, in twice the time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from harness.contracts import Artifacts, OutputLayer
from harness.plan.registry import method
from methods.softmax import arrays, reduction
from methods.softmax.candidates import SAMPLE, CandidateSearch, by_frequency, costs, read, size
from methods.softmax.completion import Completable, Completion
from methods.softmax.inputs import checked_layer, checked_training


@method(
    "fgd",
    contract="softmax-screening",
    baseline="exact",
    summary="inner products as nearest neighbours on an HNSW graph (Zhang et al., 2018)",
)
class Fgd(Completable, CandidateSearch):
    """Knob: `ef_search`, the beam of the graph search. `neighbours` words are scored; only they have a probability,
    unless there is a `completion_rank` (see `CandidateSearch.log_prob`).

    Graph: `links` per node (M), `ef_construction`, the beam while building. Errors as for `CandidateSearch`.
    """

    ef_search: Annotated[int, Field(ge=1)] = 32
    neighbours: Annotated[int, Field(ge=1)] = 10
    links: Annotated[int, Field(ge=2)] = 32
    ef_construction: Annotated[int, Field(ge=1)] = 200
    space: Literal["inner-product", "reduced"] = "inner-product"

    @property
    def random_fit(self) -> bool:
        return True

    def fit(
        self, layer: OutputLayer, contexts: NDArray[np.float32], targets: NDArray[np.int64], artifacts: Artifacts
    ) -> None:
        import faiss

        layer = checked_layer(layer)
        contexts, targets = checked_training(layer, contexts, targets, 1, "fgd")

        def build(folder: Path) -> None:
            reduced = reduction.points(layer)
            points, metric = (
                (reduced, faiss.METRIC_L2)
                if self.space == "reduced"
                else (np.ascontiguousarray(reduced[:, :-1]), faiss.METRIC_INNER_PRODUCT)
            )
            index: Any = faiss.IndexHNSWFlat(points.shape[1], self.links, metric)
            index.hnsw.efConstruction = self.ef_construction
            index.add(points)
            faiss.write_index(index, str(folder / "graph.faiss"))

        layer_hash = arrays.content(layer.weight, layer.bias)
        key = {"layer": layer_hash, "links": self.links,
               "ef_construction": self.ef_construction, "space": self.space}  # fmt: skip
        artifacts.build("fgd-graph", key, build)
        if self.completion_rank:
            Completion.fit(layer, self.completion_rank, layer_hash, artifacts)
        artifacts.values["frequent"] = by_frequency(targets, len(layer.weight)).tolist()[:SAMPLE]
        self.open(layer, artifacts)
        swig: Any = faiss.cvar  # its members are made at import time
        statistics = swig.hnsw_stats
        statistics.reset()
        found = self._mean_found(contexts[:SAMPLE])
        artifacts.values["distances"] = statistics.ndis / min(SAMPLE, len(contexts))
        artifacts.values["found"] = found

    def open(self, subject: OutputLayer, artifacts: Artifacts) -> None:
        import faiss

        layer = checked_layer(subject)
        words, dimension = layer.weight.shape
        frequent = np.asarray(artifacts.values["frequent"], np.int32)
        rest = np.setdiff1d(np.arange(words, dtype=np.int32), frequent)
        self._prepare(layer, np.concatenate([frequent, rest]))
        self._path = artifacts.path("fgd-graph") / "graph.faiss"
        self._index = cast(Any, faiss.read_index(str(self._path)))
        self._completion = Completion.open(layer, artifacts) if self.completion_rank else None
        self._values = artifacts.values
        self._index.hnsw.efSearch = max(self.ef_search, self.neighbours)
        self._k = min(self.neighbours, words)
        self._query = np.empty(dimension + 2, np.float32)  # an inner-product graph reads all but the last
        self._distances, self._found = np.empty(self._k, np.float32), np.empty(self._k, np.int64)
        pointer = faiss.swig_ptr  # the raw call: the Python wrapper's checks and copies cost as much as a search
        self._arguments = (1, pointer(self._query), self._k, pointer(self._distances), pointer(self._found))
        self._search = self._index.search_c
        probe = np.zeros(dimension, np.float32)
        self.topk(probe, 1)
        if self._completion:
            self.log_prob(probe, 0)

    def _find(self, context: NDArray[np.float32]) -> int:
        reduction.query(context, self._query)
        self._search(*self._arguments)
        found = self._found
        if found[-1] < 0:  # the graph gave fewer than asked for
            found = found[found >= 0]
        self._ids[: len(found)] = found
        return len(found)

    def counters(self) -> dict[str, float]:
        """multiply_adds: from distances counted on training contexts. extra_bytes: the index (vectors and links) and,
        if there is a completion, its factors."""
        factors = self._completion.factors if self._completion else ()
        completing = self._completion.multiply_adds if self._completion else 0.0
        dimension = self._layer.weight.shape[1]
        distances = float(self._values.get("distances", 0.0))
        products = (dimension + 2) * distances + dimension * self._k + completing
        candidates = float(self._values.get("found", self._k))
        held = self._path.stat().st_size + size(factors)
        return costs(products, candidates, held, read(products, candidates + (len(self._frequent) if factors else 0)))
