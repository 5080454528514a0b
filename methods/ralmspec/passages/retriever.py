"""What a passage retriever is, and which one parameters name. The cache of a request ranks with the same scores
(section 3).

| retriever | paper | ranks by |
| --- | --- | --- |
| `exact` | EDR | inner product of passage vectors, every passage looked at (`passages.dense`) |
| `hnsw` | ADR | the same, of the passages that a graph search reaches |
| `bm25` | SR | BM25 (`passages.bm25`) |
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from harness.common.errors import RequestError
from methods.nearest.index import Beam, IndexOptions, Links, Seed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Kind = Literal["exact", "hnsw", "bm25"]


class PassageRetriever(ABC):
    """Finds passages for a query."""

    @abstractmethod
    def encode(self, text: str) -> Any:
        """A query as this retriever takes it."""

    @abstractmethod
    def search(self, queries: Sequence[Any], k: int, single_thread: bool = False) -> list[NDArray[np.int64]]:
        """Ids of the best passages of each query, best first, at most k; none where no passage matches.

        A query's answer does not depend on the others. `single_thread`: use the calling thread alone.
        """

    @abstractmethod
    def score(self, query: Any, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """Scores [m] by which `search` ranks, of passages ids [m]; -inf for one that would never be found."""


@dataclass(kw_only=True)
class RetrieverOptions:
    """Which retriever, and how it is built: the parameters that methods and analyses which search passages inherit.

    encoder: `lsa`, or a hub id or folder of a trained one; query_encoder: where it differs, as with DPR.
    dimension, sample: of lsa. links, ef: of hnsw. k1, b, stopwords: of BM25. memory_gb: bound of the vectors that
    exact search holds in memory. seed: of lsa's sample and its SVD. Raises `RequestError` for two encoders that do not
    belong together.
    """

    retriever: Kind = "exact"
    encoder: str = "lsa"
    query_encoder: str = ""
    dimension: Annotated[int, Field(ge=1)] = 256
    sample: Annotated[int, Field(ge=1)] = 50_000
    links: Links = 32
    ef: Beam = 128
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

    @property
    def dense(self) -> IndexOptions:
        """The index of passage vectors."""
        index: Literal["flat", "hnsw"] = "hnsw" if self.retriever == "hnsw" else "flat"
        return IndexOptions(index=index, links=self.links, ef=self.ef, seed=self.seed)
