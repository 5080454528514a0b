"""The interface of passage retrievers, the cache that ranks by their scores (section 3), and their parameters.

| retriever | paper | ranks by |
| --- | --- | --- |
| `exact` | EDR | inner product of passage vectors, over all passages (`passages.dense`) |
| `hnsw` | ADR | the same, over the passages that a graph search reaches |
| `ivf` | - | the same, over the best of `nprobe` inverted lists of 8-bit codes |
| `bm25` | SR | BM25 (`passages.bm25`) |
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from harness.common.errors import RequestError
from methods.nearest.index import Backend, Beam, IndexOptions, Links, Seed

Kind = Literal["exact", "hnsw", "ivf", "bm25"]


class PassageRetriever(ABC):
    """Finds passages for a query."""

    @property
    def bytes_read(self) -> int | None:
        """Bytes of vectors and of the encoder that encoding, searching and scoring have read so far; None: unknown."""
        return None

    @abstractmethod
    def encode(self, text: str) -> Any:
        """The query in this retriever's form."""

    @abstractmethod
    def search(self, queries: Sequence[Any], k: int, single_thread: bool = False) -> list[NDArray[np.int64]]:
        """Ids of the best passages of each query, best first, at most k; empty if no passage matches.

        A query's result does not depend on the others. `single_thread`: use only the calling thread.
        """

    @abstractmethod
    def score(self, query: Any, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """The scores [m] by which `search` ranks passages ids [m]; -inf for a passage that it never finds."""


class PassageCache:
    """Passages that earlier searches found, ranked by the retriever's scores (section 3, Figure 2)."""

    def __init__(self, retriever: PassageRetriever) -> None:
        self.retriever = retriever
        self._ids: NDArray[np.int64] = np.empty(0, np.int64)
        self._new: list[NDArray[np.int64]] = []  # merged when `ids` is read: without speculation never

    @property
    def ids(self) -> NDArray[np.int64]:
        """All ids, ascending, so that the first of equal scores has the lowest id."""
        if self._new:
            self._ids = np.unique(np.concatenate([self._ids, *self._new]))
            self._new = []
        return self._ids

    def insert(self, found: Sequence[NDArray[np.int64]]) -> None:
        """Add search results."""
        self._new += found

    def best(self, query: Any) -> int:
        """The best cached passage; -1 if none matches."""
        ids = self.ids
        if not len(ids):
            return -1
        scores = self.retriever.score(query, ids)
        best = int(scores.argmax())
        return int(ids[best]) if scores[best] > -np.inf else -1


@dataclass(kw_only=True)
class RetrieverOptions:
    """The retriever and its parameters, inherited by methods and analyses that search passages.

    encoder: `lsa`, or a trained one, given as models are (`all-minilm-l6-v2`). query_encoder: a different one for
    queries, as with DPR. dimension, sample: of lsa. links, ef: of hnsw; both approximate searches rank
    the best ef again, at least 8 and at most 64. nlist, nprobe: of ivf, lists (0: about 4 sqrt(N)) and lists searched.
    padding: random vectors of no passage, added so that exact search takes as long as over a larger knowledge base.
    k1, b, stopwords: of BM25. memory_gb: most memory for the vectors of exact search. seed: of lsa's sample and SVD,
    of the index and of padding. Raises `RequestError` when only one of two encoders is lsa, and for padding of another
    retriever than `exact`.
    """

    retriever: Kind = "exact"
    encoder: str = "lsa"
    query_encoder: str = ""
    dimension: Annotated[int, Field(ge=1)] = 256
    sample: Annotated[int, Field(ge=1)] = 50_000
    links: Links = 32
    ef: Beam = 128
    nlist: Annotated[int, Field(ge=0)] = 0
    nprobe: Annotated[int, Field(ge=1)] = 32
    padding: Annotated[int, Field(ge=0)] = 0
    k1: Annotated[float, Field(ge=0)] = 0.9
    b: Annotated[float, Field(ge=0, le=1)] = 0.4
    stopwords: bool = True
    memory_gb: Annotated[float, Field(ge=0)] = 8.0
    seed: Seed = 0

    def __post_init__(self) -> None:
        if self.query_encoder and "lsa" in (self.encoder, self.query_encoder):
            raise RequestError(
                f"encoder={self.encoder} and query_encoder={self.query_encoder} give vectors of different spaces; "
                "name two trained encoders that belong together, or leave query_encoder out"
            )
        if self.padding and self.retriever != "exact":
            raise RequestError(f"padding={self.padding} enlarges exact search only; leave it out with {self.retriever}")

    @property
    def dense(self) -> IndexOptions:
        """The index of passage vectors."""
        names: dict[Kind, Backend] = {"hnsw": "hnsw", "ivf": "ivf-sq8"}
        index = names.get(self.retriever, "flat")
        return IndexOptions(
            index=index, links=self.links, ef=self.ef, nlist=self.nlist, nprobe=self.nprobe, seed=self.seed
        )
