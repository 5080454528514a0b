"""Datastore and index of a method, built once and opened in every process, and the search that methods share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from harness.contracts import Artifacts, KeyKind, LanguageModel, Phases, Shared
from harness.measure.phases import NoPhases
from harness.progress import Progress
from methods.knnlm.builder import datastore_artifact
from methods.knnlm.datastore import Datastore, datastore_key
from methods.knnlm.index import EXACT, IndexOptions, NeighborIndex, build_index, index_key, needs_build, open_index
from methods.knnlm.positions import Positions
from methods.knnlm.ranges import within

if TYPE_CHECKING:
    from numpy.typing import NDArray

Distance = Literal["exact", "approximate"]
ROWS = 512  # positions searched at once when all are searched ahead


@dataclass(frozen=True, slots=True)
class RetrievalOptions:
    """Keys of which kind are searched, how, and for how many neighbours. Raises `RequestError` for values out of
    range."""

    k: int = 1024
    key: KeyKind = "last_ffn_input"
    distance: Distance = "exact"
    index: IndexOptions = field(default_factory=IndexOptions)
    device: str = "cpu"
    memory_gb: float = 8.0

    def __post_init__(self) -> None:
        for name, least in (("k", 1), ("memory_gb", 0)):
            within(name, getattr(self, name), least)

    def search_key(self) -> dict[str, Any]:
        """Everything beside datastore and queries that can change an answer."""
        return {"k": self.k, "distance": self.distance, **self.index.search_key()}


class Retriever:
    """An opened datastore with its index."""

    def __init__(self, store: Datastore, index: NeighborIndex, options: RetrievalOptions) -> None:
        self.store = store
        self.index = index
        self.options = options

    def search(self, queries: NDArray[np.float32], phases: Phases) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """The nearest entries of queries [n, d]: squared L2 distances float32 [n, k'] ascending, ids int64 [n, k'],
        k' = min(k, N); distance inf and id -1 where an approximate index found fewer.

        With `distance="exact"` the distances are those to the stored keys (Khandelwal et al., 2020), else the
        index's own (He et al., 2021; Alon et al., 2022).
        """
        with phases("search"):
            distances, ids = self.index.search(queries, self.options.k)
        if self.options.distance == "exact" and self.options.index.backend not in EXACT:
            from methods.knnlm.distances import exact_distances, ranked

            with phases("distance"):
                return ranked(exact_distances(self.store, queries, ids), ids)
        return distances, ids

    def hits(self, ids: NDArray[np.integer], targets: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether the entries ids [n, k] have the values targets [n]; False for id -1."""
        same: NDArray[np.bool_] = (self.store.values[ids] == targets[:, None]) & (ids >= 0)
        return same

    def search_shared(
        self, texts: Sequence[Positions], text_hash: str, shared: Shared
    ) -> tuple[NDArray[np.float32], NDArray[np.integer]]:
        """Neighbours of all positions of the texts, in a row: distances float32 [T, k'], ids int32 (int64 where the
        datastore needs it) [T, k'], searched once for all cells of a quality pass."""
        key = {"datastore": self.store.metadata["built_from"], "text": text_hash, **self.options.search_key()}

        def compute() -> dict[str, NDArray[Any]]:
            total, width = sum(map(len, texts)), min(self.options.k, self.store.entries)
            distances = np.empty((total, width), np.float32)
            ids = np.empty((total, width), np.int32 if self.store.entries < 1 << 31 else np.int64)
            progress, done = Progress(), 0
            for text in texts:
                for start in range(0, len(text), ROWS):
                    queries = text.queries[start : start + ROWS]
                    part = slice(done, done + len(queries))
                    distances[part], ids[part] = self.search(queries, NoPhases())
                    done += len(queries)
                    progress.update("neighbours", done, total, "tokens")
            return {"distances": distances, "ids": ids}

        arrays = shared.arrays("neighbours", key, compute)
        return arrays["distances"], arrays["ids"]


def build_retriever(
    model: LanguageModel, reference: Sequence[NDArray[np.int64]], artifacts: Artifacts, options: RetrievalOptions
) -> dict[str, Any]:
    """Make the artifacts `datastore` and, for an approximate backend, `index`; returns the datastore's key."""
    key = datastore_key(model, reference, options.key)
    folder = datastore_artifact(artifacts, model, reference, options.key)
    if needs_build(options.index):
        store = Datastore.open(folder, key)
        artifacts.build(
            "index", index_key(key, options.index), lambda folder: build_index(folder, store, options.index)
        )
    return key


def open_retriever(model: LanguageModel, artifacts: Artifacts, options: RetrievalOptions) -> Retriever:
    """Open what `build_retriever` made. Raises `RequestError` when it was built with another model or key."""
    store = Datastore.open(artifacts.path("datastore"), {"model": model.hash, "key": options.key})
    folder = artifacts.path("index") if needs_build(options.index) else None
    index = open_index(store, options.index, folder, device=options.device, memory_gb=options.memory_gb)
    return Retriever(store, index, options)
