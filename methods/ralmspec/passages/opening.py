"""Building and opening the retriever that `RetrieverOptions` describes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from harness.common.errors import RequestError
from harness.contracts import Artifacts, Streams
from methods.nearest.faiss_index import build_index
from methods.nearest.opening import index_key, needs_build, open_index, read_through
from methods.nearest.vectors import open_vectors
from methods.ralmspec.passages.dense import DenseRetriever
from methods.ralmspec.passages.encoders import (
    NUMBERS,
    TERMS,
    VECTORS,
    Encoder,
    LatentSemantic,
    Pretrained,
    encode_passages,
    fit_latent_semantic,
    identity,
    pad_vectors,
)
from methods.ralmspec.passages.retriever import PassageRetriever, RetrieverOptions


def passages_of(knowledge: Sequence[str] | Streams) -> Sequence[str]:
    """The knowledge base, if it is passages of text. Raises `RequestError` if it is not, and if it is empty."""
    if not len(knowledge):
        raise RequestError("the knowledge base is empty; retrieval needs at least one passage")
    if not isinstance(knowledge[0], str):
        raise RequestError("retrieval searches passages of text, not streams of token ids; use the task qa-latency")
    return cast("Sequence[str]", knowledge)


def build_retriever(passages: Sequence[str], text: str, artifacts: Artifacts, options: RetrieverOptions) -> None:
    """Build the retriever's artifacts over `passages`; `text` is their hash. Raises `RequestError` when they hold no
    word."""
    if options.retriever == "bm25":
        from methods.ralmspec.passages.bm25 import build_bm25

        key = {"passages": text, "k1": options.k1, "b": options.b, "stopwords": options.stopwords}
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
        made |= {"content": identity(options.encoder), "numbers": str(NUMBERS)}
    key = {"passages": text, **made}

    folder = artifacts.build(
        "passage-vectors", key,
        lambda folder: encode_passages(folder, _encoder(artifacts, options.encoder), passages),
    )  # fmt: skip
    if options.padding:
        artifacts.build(
            "padded-vectors", {**key, "padding": options.padding, "seed": options.seed},
            lambda padded: pad_vectors(padded, np.load(folder / VECTORS, mmap_mode="r"), options.padding, options.seed),
        )  # fmt: skip
    if needs_build(options.dense):
        vectors = open_vectors(folder / VECTORS)
        artifacts.build(
            "passage-index", index_key(key, options.dense), lambda folder: build_index(folder, vectors, options.dense)
        )


def open_retriever(artifacts: Artifacts, options: RetrieverOptions) -> PassageRetriever:
    """Open what `build_retriever` made and search once, so that later searches need not read from disk or compile."""
    opened: PassageRetriever
    if options.retriever == "bm25":
        from methods.ralmspec.passages.bm25 import Bm25Retriever

        opened = Bm25Retriever(artifacts.path("bm25"))
    else:
        vectors = open_vectors(artifacts.path("padded-vectors" if options.padding else "passage-vectors") / VECTORS)
        folder = artifacts.path("passage-index") if needs_build(options.dense) else None
        if folder is not None:
            read_through(folder)
        index = open_index(vectors, options.dense, folder, memory_gb=options.memory_gb)
        index.load()
        encoder = _encoder(artifacts, options.query_encoder or options.encoder)
        opened = DenseRetriever(vectors, vectors.entries - options.padding, index, encoder, options.ef)
    query: Any = opened.encode("the")
    opened.search([query], 1)
    opened.score(query, np.zeros(1, np.int64))
    return opened


def _encoder(artifacts: Artifacts, place: str) -> Encoder:
    return LatentSemantic(artifacts.path("lsa")) if place == "lsa" else Pretrained(place)
