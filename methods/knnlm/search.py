"""The options and the search of all methods on a datastore. Datastore and index are built once and opened in every
process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from harness.common.phases import NoPhases
from harness.common.progress import Progress
from harness.contracts import Artifacts, KeyKind, LanguageModel, Phases, Shared, Streams
from methods.knnlm.builder import datastore_artifact
from methods.knnlm.datastore import Datastore, datastore_key
from methods.knnlm.positions import Positions
from methods.nearest import kernels
from methods.nearest.distances import exact_distances, ranked
from methods.nearest.faiss_index import FaissIndex, build_index
from methods.nearest.index import EXACT, IndexOptions, NeighborIndex
from methods.nearest.opening import index_key, needs_build, open_index
from methods.nearest.vectors import copied

Distance = Literal["exact", "approximate"]
ROWS = 512  # positions searched at once when all are searched in advance


@dataclass(kw_only=True)
class DatastoreOptions(IndexOptions):
    """Parameters of the search and the mixture, inherited by methods on a datastore.

    k: neighbours. key: the representation that is stored and searched. distance: `exact` recomputes distances from the
    stored keys after an approximate search (Khandelwal et al., 2020); `approximate` uses the index's own distances (He
    et al., 2021; Alon et al., 2022), also for entries that no search found. lambda, temperature: of the mixture; a
    number, or `tuned` on the validation text. device: of the search; `model` is the model's own. memory_gb: most memory
    for the keys of exact search and, separately, for RetoMaton's copy of them.
    index to seed: see `IndexOptions`.
    """

    k: Annotated[int, Field(ge=1)] = 1024
    key: KeyKind = "last_ffn_input"
    distance: Distance = "exact"
    lambda_: Annotated[float, Field(ge=0, le=1)] | Literal["tuned"] = "tuned"
    temperature: Annotated[float, Field(gt=0)] | Literal["tuned"] = "tuned"
    device: Literal["model", "cpu", "cuda"] = "model"
    memory_gb: Annotated[float, Field(ge=0)] = 8.0

    @property
    def random_fit(self) -> bool:
        """True for approximate indexes: k-means trains quantisers, and several threads build graphs."""
        return self.index not in EXACT

    def search_key(self) -> dict[str, Any]:
        """Everything besides datastore and queries that can change a search result."""
        return {"k": self.k, "distance": self.distance, **super().search_key()}


class DatastoreSearch:
    """An opened datastore with its index. k: neighbours of a search; 0: those of the options. bytes_read: by all
    searches, of the index and of the values and keys of what it found. own: the index, if its own distances are used;
    None: distances are to the stored keys. entry_bytes: read for an entry's distance and value without a search."""

    def __init__(self, store: Datastore, index: NeighborIndex, options: DatastoreOptions, k: int = 0) -> None:
        self.store = store
        self.index = index
        self.options = options
        self.k = k or options.k
        self.bytes_read = 0
        self.own: FaissIndex | None = None
        if isinstance(index, FaissIndex) and needs_build(options) and options.distance == "approximate":
            self.own = index
        key_bytes = store.dimension * store.keys.itemsize if self.own is None else self.own.code
        self.entry_bytes = key_bytes + store.values.itemsize
        self.bits = np.asarray(store.keys).view(np.uint16)  # a plain array: it is faster to read than a memory map

    def load(self) -> None:
        """Load what searches and `distances` read. Memory-mapped keys are copied if they fit in `memory_gb`, once for
        all methods in a process. Where the system uses large pages for memory and small ones for files, distances to
        scattered keys were three times as fast after a search; on an Intel Xeon with AMX no difference was seen."""
        self.index.load()
        if self.own is None and self.store.keys.nbytes <= self.options.memory_gb * 1e9:
            self.bits = copied(self.store).view(np.uint16)

    def distances(self, query: NDArray[np.float32], ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Squared L2 distances float32 [n] of a query [d] to entries ids [n] without a search, of the kind that
        `search` gives."""
        if self.own is not None:
            return self.own.distances(query, ids)
        out = np.empty(len(ids), np.float64)
        kernels.distances(self.bits, ids, query, out)
        return out.astype(np.float32)

    def search(self, queries: NDArray[np.float32], phases: Phases) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """The nearest entries of queries [n, d]: squared L2 distances float32 [n, k'] ascending and ids int64 [n, k'],
        k' = min(k, N). Distance inf and id -1 fill rows in which an approximate index found fewer. The option
        `distance` decides whether distances are to the stored keys or the index's own."""
        before = self.index.bytes_read
        with phases("search"):
            distances, ids = self.index.search(queries, self.k)
        again = self.options.distance == "exact" and self.options.index not in EXACT
        each = self.entry_bytes if again else self.store.values.itemsize
        self.bytes_read += self.index.bytes_read - before + ids.size * each
        if again:
            with phases("distance"):
                return ranked(exact_distances(self.store, queries, ids), ids)
        return distances, ids

    def single_threaded(self) -> DatastoreSearch:
        """The same search on one thread, for use next to other work."""
        return DatastoreSearch(self.store, self.index.single_threaded(), self.options, self.k)

    def hits(self, ids: NDArray[np.integer], targets: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether the entries ids [n, k] have the values targets [n]; False for id -1."""
        same: NDArray[np.bool_] = (self.store.values[ids] == targets[:, None]) & (ids >= 0)
        return same

    def search_shared(
        self, texts: Sequence[Positions], text_hash: str, shared: Shared
    ) -> tuple[NDArray[np.float32], NDArray[np.integer]]:
        """Neighbours of all positions of the texts, concatenated: distances float32 [T, k'] and ids [T, k'], int32 or,
        from 2^31 entries on, int64. Searched once for all cells of a quality pass."""
        key = {
            "datastore": self.store.metadata["built_from"],
            "text": text_hash,
            **self.options.search_key(),
            "k": self.k,
        }

        def compute() -> dict[str, NDArray[Any]]:
            total, width = sum(map(len, texts)), min(self.k, self.store.entries)
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


def build_search(
    model: LanguageModel, reference: Streams, artifacts: Artifacts, options: DatastoreOptions
) -> dict[str, Any]:
    """Build the artifacts `datastore` and, for an approximate index, `index`. Returns the datastore's key."""
    key = datastore_key(model, reference, options.key)
    folder = datastore_artifact(artifacts, model, reference, options.key)
    if needs_build(options):
        store = Datastore.open(folder, key)
        artifacts.build("index", index_key(key, options), lambda folder: build_index(folder, store, options))
    return key


def open_search(model: LanguageModel, artifacts: Artifacts, options: DatastoreOptions) -> DatastoreSearch:
    """Open what `build_search` made. Raises `RequestError` when it was built with another model or key."""
    store = Datastore.open(artifacts.path("datastore"), {"model": model.hash, "key": options.key})
    folder = artifacts.path("index") if needs_build(options) else None
    device = model.device if options.device == "model" else options.device
    direct = options.distance == "approximate"
    index = open_index(store, options, folder, device=device, memory_gb=options.memory_gb, direct=direct)
    return DatastoreSearch(store, index, options)
