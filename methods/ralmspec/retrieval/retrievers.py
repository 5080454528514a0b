"""Passage retrievers behind one interface; the cache of a request ranks with the same scores (section 3).

| retriever | paper | ranks by |
| --- | --- | --- |
| `exact` | EDR | inner product of passage vectors, every passage looked at (`methods.knnlm.flat`) |
| `hnsw` | ADR | the same, of the passages that a graph search reaches |
| `bm25` | SR | BM25 (`methods.ralmspec.retrieval.bm25`) |

A batched product may round otherwise than a single one, so whatever a search found is ranked again by a score that
depends on query and passage alone; equal scores rank by id. Vectors are ranked by distance, which orders them as their
inner products do: all passages have the same length by one more column (`encode_passages`).
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
from harness.errors import RequestError
from methods.knnlm.datastore import Datastore
from methods.knnlm.distances import ranked, unrounded_distances
from methods.knnlm.flat import FlatIndex
from methods.knnlm.index import Backend, IndexOptions, NeighborIndex, build_index, index_key, open_index
from methods.knnlm.ranges import within
from methods.knnlm.threads import Workers
from methods.ralmspec.retrieval.encoders import (
    LONGEST,
    TERMS,
    Encoder,
    LatentSemantic,
    Pretrained,
    encode_passages,
    fit_latent_semantic,
    identity,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

Kind = Literal["exact", "hnsw", "bm25"]
FEW, MANY = 8, 64  # candidates of a graph search, at least and at most, to be ranked again
CHUNK = 1 << 24  # bytes read at once


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


@dataclass(kw_only=True)
class RetrieverOptions:
    """Which retriever, and how it is built: the parameters that methods and analyses which search passages inherit.

    encoder: `lsa`, or a hub id or folder of a trained one; query_encoder: where it differs, as with DPR.
    dimension, sample: of lsa. links, ef: of hnsw. k1, b, stopwords: of BM25. memory_gb: bound of the vectors that
    exact search holds in memory. seed: of lsa's sample and its SVD. Raises `RequestError` for values out of range.
    """

    retriever: Kind = "exact"
    encoder: str = "lsa"
    query_encoder: str = ""
    dimension: int = 256
    sample: int = 50_000
    links: int = 32
    ef: int = 128
    k1: float = 0.9
    b: float = 0.4
    stopwords: bool = True
    memory_gb: float = 8.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least, most in (
            ("dimension", 1, np.inf), ("sample", 1, np.inf), ("k1", 0, np.inf), ("b", 0, 1), ("memory_gb", 0, np.inf),
        ):  # fmt: skip
            within(name, getattr(self, name), least, most)
        IndexOptions(links=self.links, ef=self.ef, seed=self.seed)
        if self.query_encoder and "lsa" in (self.encoder, self.query_encoder):
            raise RequestError(
                f"encoder={self.encoder} and query_encoder={self.query_encoder} give vectors of different spaces; "
                "name two trained encoders that belong together, or leave query_encoder out"
            )

    @property
    def dense(self) -> IndexOptions:
        """The index of passage vectors in kNN-LM's terms."""
        backend: Backend = "hnsw" if self.retriever == "hnsw" else "flat"
        return IndexOptions(backend, links=self.links, ef=self.ef, seed=self.seed)


class DenseRetriever(Retriever):
    """`exact` and `hnsw` over passage vectors; of the `ef` nodes that a graph search keeps, `beam` are ranked again."""

    def __init__(self, store: Datastore, index: NeighborIndex, encoder: Encoder, ef: int) -> None:
        self.store = store
        self.index = index
        self.encoder = encoder
        self.beam = min(max(ef, FEW), MANY, store.entries)
        self.alone = single_threaded(index)

    def encode(self, text: str) -> NDArray[np.float32]:
        return np.append(self.encoder.query(text), np.float32(0))

    def search(self, queries: Sequence[Any], k: int, aside: bool = False) -> list[NDArray[np.int64]]:
        vectors = np.stack(queries)
        index = self.alone if aside else self.index
        if isinstance(index, FlatIndex):  # ranks by the same distances itself
            return [ids[ids >= 0] for ids in index.search(vectors, k)[1]]
        return self._walk(index, vectors, k)

    def _walk(self, index: NeighborIndex, vectors: NDArray[np.float32], k: int) -> list[NDArray[np.int64]]:
        """A graph search visits more nodes for a larger k, so that it could find another best passage for it. All
        searches ask for `beam` passages; where k exceeds it, a second search only adds behind them."""
        reached = index.search(vectors, self.beam)[1]
        found = [ids[ids >= 0][:k] for ids in ranked(unrounded_distances(self.store, vectors, reached), reached)[1]]
        if k <= self.beam:
            return found
        more = index.search(vectors, k)[1]
        return [
            np.concatenate([best, ids[(ids >= 0) & ~np.isin(ids, best)]])[:k]
            for best, ids in zip(found, more, strict=True)
        ]

    def score(self, query: NDArray[np.float32], ids: NDArray[np.int64]) -> NDArray[np.float64]:
        scores: NDArray[np.float64] = -unrounded_distances(self.store, query[None], ids[None])[0]
        return scores


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
    if options.retriever == "bm25":
        from methods.ralmspec.retrieval.bm25 import build_bm25, version

        key = {"passages": text, "k1": options.k1, "b": options.b, "stopwords": options.stopwords, "bm25s": version()}
        artifacts.build("bm25", key, lambda folder: build_bm25(folder, passages, options))
        return
    made: dict[str, Any] = {"encoder": options.encoder}
    if options.encoder == "lsa":
        made |= {"dimension": options.dimension, "sample": options.sample, "seed": options.seed, "terms": TERMS}
        artifacts.build(
            "lsa", {"passages": text, **made},
            lambda folder: fit_latent_semantic(folder, passages, options.dimension, options.sample, options.seed),
        )  # fmt: skip
    else:
        made |= {"content": identity(options.encoder), "longest": LONGEST}
    key = {"passages": text, **made}

    def build_vectors(folder: Path) -> None:
        encoder = _encoder(artifacts, options.encoder)
        np.save(folder / "vectors.npy", encode_passages(encoder, passages))

    folder = artifacts.build("passage-vectors", key, build_vectors)
    if options.retriever == "hnsw":
        store = _store(folder)
        artifacts.build(
            "passage-hnsw", index_key(key, options.dense), lambda folder: build_index(folder, store, options.dense)
        )


def open_retriever(artifacts: Artifacts, options: RetrieverOptions) -> Retriever:
    """Open what `build_retriever` made, and search once: what a search reads or compiles is at hand then."""
    opened = _open(artifacts, options)
    query = opened.encode("the")
    opened.search([query], 1)
    opened.score(query, np.zeros(1, np.int64))
    return opened


def _open(artifacts: Artifacts, options: RetrieverOptions) -> Retriever:
    if options.retriever == "bm25":
        from methods.ralmspec.retrieval.bm25 import Bm25Retriever

        return Bm25Retriever(artifacts.path("bm25"))
    store = _store(artifacts.path("passage-vectors"))
    folder = artifacts.path("passage-hnsw") if options.retriever == "hnsw" else None
    if folder is not None:
        read_through(folder)
    index = open_index(store, options.dense, folder, memory_gb=options.memory_gb)
    index.load()
    return DenseRetriever(store, index, _encoder(artifacts, options.query_encoder or options.encoder), options.ef)


def read_through(folder: Path) -> None:
    """Bring the files of a folder, which are to be mapped, into memory."""
    for path in folder.iterdir():
        with path.open("rb") as file:
            while file.read(CHUNK):
                pass


def _encoder(artifacts: Artifacts, place: str) -> Encoder:
    return LatentSemantic(artifacts.path("lsa")) if place == "lsa" else Pretrained(place)


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
