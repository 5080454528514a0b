"""`ralmseq` and `ralmspec`: iterative RaLM served sequentially and by speculation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from harness.contracts import Artifacts, Decoded, GenerationModel, Phases, RetrievalGeneration
from harness.errors import RequestError
from harness.registry import method
from methods.ralmspec.iterative import IterativeRaLM
from methods.ralmspec.passages import Passages, build_passages
from methods.ralmspec.retrievers import (
    Kind,
    Retriever,
    RetrieverOptions,
    build_retriever,
    open_retriever,
    passages_hash,
)
from methods.ralmspec.service import Scheduling, Service
from methods.ralmspec.speculation import follow

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


LEAST = 16  # tokens of a passage that are worth reading


class _Iterative(RetrievalGeneration):
    """What both have in common: knowledge base, retriever, and the prompt's form."""

    def __init__(self, options: RetrieverOptions, interval: int, query_tokens: int, passage_tokens: int) -> None:
        for name, value in (
            ("interval", interval), ("query_tokens", query_tokens), ("dimension", options.dimension),
            ("sample", options.sample), ("links", options.links), ("ef", options.ef),
        ):  # fmt: skip
            if value < 1:
                raise RequestError(f"{name}={value} is not at least 1")
        if passage_tokens < 0:
            raise RequestError(f"passage_tokens={passage_tokens} is negative")
        self.options = options
        self.interval = interval
        self.query_tokens = query_tokens
        self.passage_tokens = passage_tokens
        self.retriever: Retriever | None = None
        self.passages: Passages | None = None

    def fit(
        self,
        model: GenerationModel,
        knowledge: Sequence[str] | Sequence[NDArray[np.int64]],
        validation: Sequence[Any],
        artifacts: Artifacts,
    ) -> None:
        """Build the retriever over `knowledge`, passages of text. Raises `RequestError` when there are none."""
        if not len(knowledge):
            raise RequestError("the knowledge base is empty; retrieval needs at least one passage")
        if not isinstance(knowledge[0], str):
            raise RequestError("iterative RaLM needs passages of text as its knowledge base, not streams of token ids")
        texts = cast("Sequence[str]", knowledge)
        text_hash = passages_hash(texts)
        build_retriever(texts, text_hash, artifacts, self.options)
        build_passages(model, texts, text_hash, self.passage_tokens, artifacts)
        self.open(model, artifacts)

    def open(self, subject: GenerationModel, artifacts: Artifacts) -> None:
        self.retriever = open_retriever(artifacts, self.options)
        self.passages = Passages(artifacts.path("passage-tokens"))

    def process(
        self, model: GenerationModel, prompt: Sequence[int], limit: int, phases: Phases, prefetch: int
    ) -> IterativeRaLM:
        """One request. Raises `RequestError` when the prompt does not fit beside passage and output."""
        if self.retriever is None or self.passages is None:
            raise RuntimeError("a retrieval generation answers after fit or open")
        room = min(model.window - limit - len(prompt), self.passage_tokens)
        if room < min(LEAST, self.passage_tokens):
            raise RequestError(
                f"a prompt of {len(prompt)} tokens and an output of {limit} leave no room for a passage in the window "
                f"of {model.window}; shorten the prompt or lower the limit"
            )
        return IterativeRaLM(
            model, self.retriever, self.passages, prompt, limit, phases, interval=self.interval, prefetch=prefetch,
            query_tokens=self.query_tokens, passage_tokens=room,
        )  # fmt: skip

    def counters(self) -> dict[str, float]:
        """Passages of the knowledge base."""
        return {"passages": float(len(self.passages))} if self.passages is not None else {}


@method(
    "ralmseq",
    contract="retrieval-generation",
    needs=("causal", "passages"),
    summary="iterative RaLM: a search before every few tokens, the passage found before the prompt",
)
class RalmSeq(_Iterative):
    """Sequential iterative RaLM (section 5.3), greedy.

    retriever, and all from encoder to stopwords: see `RetrieverOptions`. interval: tokens between retrievals.
    query_tokens: the end of the context that is searched by; Algorithm 1 encodes all of it, Ram et al. (2023) the last
    32 tokens. passage_tokens: a passage is cut to so many, and to
    what prompt and output leave of the model's window.
    """

    def __init__(
        self,
        *,
        retriever: Kind = "exact",
        encoder: str = "lsa",
        query_encoder: str = "",
        dimension: int = 256,
        sample: int = 50_000,
        links: int = 32,
        ef: int = 128,
        k1: float = 0.9,
        b: float = 0.4,
        stopwords: bool = True,
        interval: int = 4,
        query_tokens: int = 256,
        passage_tokens: int = 256,
        seed: int = 0,
    ) -> None:
        options = RetrieverOptions(
            retriever, encoder, query_encoder, dimension, sample, links, ef, k1, b, stopwords, seed=seed
        )
        super().__init__(options, interval, query_tokens, passage_tokens)

    def generate(self, model: GenerationModel, prompt: Sequence[int], limit: int, phases: Phases) -> Decoded:
        process = self.process(model, prompt, limit, phases, prefetch=1)
        record = follow(process, phases)
        return Decoded(process.output, record.trace(by_time=False))


@method(
    "ralmspec",
    contract="retrieval-generation",
    needs=("causal", "passages"),
    baseline="ralmseq",
    summary="iterative RaLM with speculative retrieval and batched verification, the same output",
)
class RalmSpec(_Iterative):
    """RaLMSpec (Algorithm 1) with any of P, S and A.

    prefetch: passages that every retrieval adds to the cache; 1 is the plain top-1 update, 20 the paper's P.
    scheduler: `fixed` with `stride`, or `os3` (S) with `window` and `gamma_max`. asynchronous: A.
    The other parameters are those of `ralmseq`, which must be given alike.
    """

    def __init__(
        self,
        *,
        prefetch: int = 1,
        scheduler: Scheduling = "fixed",
        stride: int = 3,
        window: int = 5,
        gamma_max: float = 0.6,
        asynchronous: bool = False,
        retriever: Kind = "exact",
        encoder: str = "lsa",
        query_encoder: str = "",
        dimension: int = 256,
        sample: int = 50_000,
        links: int = 32,
        ef: int = 128,
        k1: float = 0.9,
        b: float = 0.4,
        stopwords: bool = True,
        interval: int = 4,
        query_tokens: int = 256,
        passage_tokens: int = 256,
        seed: int = 0,
    ) -> None:
        if prefetch < 1:
            raise RequestError(f"prefetch={prefetch} is not at least 1")
        options = RetrieverOptions(
            retriever, encoder, query_encoder, dimension, sample, links, ef, k1, b, stopwords, seed=seed
        )
        super().__init__(options, interval, query_tokens, passage_tokens)
        self.prefetch = prefetch
        self.service = Service(scheduler, stride, window, gamma_max, asynchronous)

    def generate(self, model: GenerationModel, prompt: Sequence[int], limit: int, phases: Phases) -> Decoded:
        process = self.process(model, prompt, limit, phases, self.prefetch)
        record = self.service.serve(process, phases)
        return Decoded(process.output, self.service.trace(record))

    def counters(self) -> dict[str, float]:
        """Passages, and `limit`: the speedup that the formula allows for what was measured."""
        return super().counters() | self.service.counters()
