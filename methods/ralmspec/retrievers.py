"""Passage retrievers behind one interface; the cache of a request ranks with the same scores (section 3).

| retriever | paper | ranks by |
| --- | --- | --- |
| `exact` | EDR | cosine of passage vectors, every passage looked at (`methods.knnlm.flat`) |
| `hnsw` | ADR | the same, of the passages that a graph search reaches |
| `bm25` | SR | BM25 (`methods.ralmspec.bm25`) |

A batched product may round otherwise than a single one, so whatever a search found is ranked again by a score that
depends on query and passage alone; equal scores rank by id. Vectors have unit length up to float16 and are ranked by
distance, which orders them as their inner products do.
"""

from __future__ import annotations

import copy
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from harness.contracts import Artifacts
from methods.knnlm.datastore import Datastore
from methods.knnlm.distances import exact_distances, ranked
from methods.knnlm.flat import FlatIndex
from methods.knnlm.index import IndexOptions, NeighborIndex, build_index, index_key, open_index
from methods.knnlm.threads import Workers
from methods.ralmspec.encoders import Encoder, LatentSemantic, Pretrained, encode_passages, fit_latent_semantic

if TYPE_CHECKING:
    from numpy.typing import NDArray

Kind = Literal["exact", "hnsw", "bm25"]
FEW = 8  # candidates that a graph search returns at least, to be ranked again


class Retriever(ABC):
    """Finds passages for a query."""

    @abstractmethod
    def encode(self, text: str) -> Any:
        """A query as this retriever takes it."""

    @abstractmethod
    def search(self, queries: Sequence[Any], k: int, aside: bool = False) -> list[NDArray[np.int64]]:
        """Ids of the best passages of each query, best first, at most k; none where no passage matches.

        A query's answer does not depend on the others. `aside`: use the calling thread alone.
        """

    @abstractmethod
    def score(self, query: Any, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """Scores [m] by which `search` ranks, of passages ids [m]; -inf for one that would never be found."""


@dataclass(frozen=True, slots=True)
class RetrieverOptions:
    """Which retriever, and how it is built.

    encoder: `lsa`, or a hub id or folder of a trained one; query_encoder: where it differs, as with DPR.
    dimension, sample: of lsa. links, ef: of hnsw. k1, b, stopwords: of BM25.
    """

    kind: Kind = "exact"
    encoder: str = "lsa"
    query_encoder: str = ""
    dimension: int = 256
    sample: int = 50_000
    links: int = 32
    ef: int = 128
    k1: float = 0.9
    b: float = 0.4
    stopwords: bool = True
    device: str = "cpu"
    memory_gb: float = 8.0
    seed: int = 0

    @property
    def index(self) -> IndexOptions:
        """The dense index in kNN-LM's terms."""
        return IndexOptions("hnsw" if self.kind == "hnsw" else "flat", links=self.links, ef=self.ef, seed=self.seed)


class DenseRetriever(Retriever):
    """`exact` and `hnsw` over passage vectors."""

    def __init__(self, store: Datastore, index: NeighborIndex, encoder: Encoder) -> None:
        self.store = store
        self.index = index
        self.encoder = encoder
        self.alone = single_threaded(index)

    def encode(self, text: str) -> NDArray[np.float32]:
        return self.encoder.query(text)

    def search(self, queries: Sequence[Any], k: int, aside: bool = False) -> list[NDArray[np.int64]]:
        vectors = np.stack(queries)
        index = self.alone if aside else self.index
        if isinstance(index, FlatIndex):  # ranks by the same distances itself
            found = index.search(vectors, k)[1]
        else:
            reached = index.search(vectors, max(k, FEW))[1]
            found = ranked(exact_distances(self.store, vectors, reached), reached)[1][:, :k]
        return [ids[ids >= 0] for ids in found]

    def score(self, query: NDArray[np.float32], ids: NDArray[np.int64]) -> NDArray[np.float64]:
        distances: NDArray[np.float64] = exact_distances(self.store, query[None], ids[None])[0].astype(np.float64)
        return -distances


def single_threaded(index: NeighborIndex) -> NeighborIndex:
    """The same index for a thread that searches beside others."""
    if not isinstance(index, FlatIndex):
        return index  # faiss goes by the calling thread's setting
    alone = copy.copy(index)
    alone.workers = Workers()
    alone.workers.count = 1
    return alone


def passages_hash(passages: Sequence[str]) -> str:
    """Hex SHA-256 (20 characters) of the passages' texts and their order."""
    state = hashlib.sha256()
    for text in passages:
        encoded = text.encode()
        state.update(len(encoded).to_bytes(8, "little"))
        state.update(encoded)
    return state.hexdigest()[:20]


def build_retriever(passages: Sequence[str], text: str, artifacts: Artifacts, options: RetrieverOptions) -> None:
    """Make what the retriever needs over passages whose hash is `text`.

    Raises `RequestError` when there is no word in them.
    """
    if options.kind == "bm25":
        from methods.ralmspec.bm25 import build_bm25, version

        key = {"passages": text, "k1": options.k1, "b": options.b, "stopwords": options.stopwords, "bm25s": version()}
        artifacts.build("bm25", key, lambda folder: build_bm25(folder, passages, options))
        return
    made = {"encoder": options.encoder}
    if options.encoder == "lsa":
        made |= {"dimension": options.dimension, "sample": options.sample, "seed": options.seed}  # type: ignore[dict-item]
        artifacts.build(
            "lsa", {"passages": text, **made},
            lambda folder: fit_latent_semantic(folder, passages, options.dimension, options.sample, options.seed),
        )  # fmt: skip
    key = {"passages": text, **made}

    def build_vectors(folder: Path) -> None:
        encoder = _encoder(artifacts, options, options.encoder)
        np.save(folder / "vectors.npy", encode_passages(encoder, passages))

    folder = artifacts.build("passage-vectors", key, build_vectors)
    if options.kind == "hnsw":
        store = _store(folder)
        artifacts.build(
            "passage-hnsw", index_key(key, options.index), lambda folder: build_index(folder, store, options.index)
        )


def open_retriever(artifacts: Artifacts, options: RetrieverOptions) -> Retriever:
    """Open what `build_retriever` made."""
    if options.kind == "bm25":
        from methods.ralmspec.bm25 import Bm25Retriever

        return Bm25Retriever(artifacts.path("bm25"))
    store = _store(artifacts.path("passage-vectors"))
    folder = artifacts.path("passage-hnsw") if options.kind == "hnsw" else None
    index = open_index(store, options.index, folder, memory_gb=options.memory_gb)
    index.load()
    return DenseRetriever(store, index, _encoder(artifacts, options, options.query_encoder or options.encoder))


def _encoder(artifacts: Artifacts, options: RetrieverOptions, place: str) -> Encoder:
    return LatentSemantic(artifacts.path("lsa")) if place == "lsa" else Pretrained(place, options.device)


def _store(folder: Path) -> Datastore:
    """Passage vectors as entries of a datastore, so that kNN-LM's indexes search them."""
    vectors = np.load(folder / "vectors.npy", mmap_mode="r")
    largest = max(
        float(np.square(vectors[i : i + 4096], dtype=np.float32).sum(1).max()) for i in range(0, len(vectors), 4096)
    )
    metadata = {"largest_norm": largest**0.5 * (1 + 1e-5), "built_from": {}, "bytes": {"vectors.npy": vectors.nbytes}}
    return Datastore(
        folder, metadata, vectors, np.zeros(len(vectors), np.int32), np.asarray([0, len(vectors)], np.int64)
    )
