"""`ralmseq` and `ralmspec`: iterative RaLM served sequentially and by speculation."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Annotated, Any, cast

import torch
from pydantic import Field

from harness.common.errors import RequestError
from harness.common.text import content_hash
from harness.contracts import Artifacts, GenerationModel, Phases, Streams
from harness.plan.registry import method
from methods.ralmspec.core.generation import Reader
from methods.ralmspec.core.serving import Sequential, Speculative
from methods.ralmspec.passages.cache import PassageCache
from methods.ralmspec.passages.generation import IterativeRaLM
from methods.ralmspec.passages.opening import build_retriever, open_retriever
from methods.ralmspec.passages.retriever import PassageRetriever, RetrieverOptions
from methods.ralmspec.passages.tokens import Passages, build_passages

LEAST = 16  # tokens of a passage that are worth reading


@dataclass(kw_only=True)
class IterativeOptions(RetrieverOptions):
    """Parameters of iterative RaLM; those of the retriever from `RetrieverOptions`.

    interval: tokens between retrievals. query_tokens: the end of the context that is searched by; Algorithm 1 encodes
    all of it, Ram et al. (2023) the last 32 tokens. passage_tokens: a passage is cut to so many, and to what prompt and
    output leave of the model's window.
    """

    interval: Annotated[int, Field(ge=1)] = 4
    query_tokens: Annotated[int, Field(ge=1)] = 256
    passage_tokens: Annotated[int, Field(ge=0)] = 256


@method(
    "ralmseq",
    contract="retrieval-generation",
    needs=("causal", "passages"),
    summary="iterative RaLM: a search before every few tokens, the passage found before the prompt",
)
class RalmSeq(IterativeOptions, Sequential):
    """Sequential iterative RaLM (section 5.3), greedy. Parameters: see `IterativeOptions`."""

    prefetch = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        self.opened: PassageRetriever | None = None
        self.passages: Passages | None = None
        self.cache: PassageCache | None = None  # that requests share; else each has its own

    @property
    def random_fit(self) -> bool:
        """Several threads build a graph, in an order of their own."""
        return self.retriever == "hnsw"

    def fit(
        self,
        model: GenerationModel,
        knowledge: Sequence[str] | Streams,
        validation: Sequence[Any],
        artifacts: Artifacts,
    ) -> None:
        """Build the retriever over `knowledge`, passages of text. Raises `RequestError` when there are none."""
        if not len(knowledge):
            raise RequestError("the knowledge base is empty; retrieval needs at least one passage")
        if not isinstance(knowledge[0], str):
            raise RequestError("iterative RaLM needs passages of text as its knowledge base, not streams of token ids")
        texts = cast("Sequence[str]", knowledge)
        text_hash = content_hash(texts)
        build_retriever(texts, text_hash, artifacts, self)
        build_passages(model, texts, text_hash, self.passage_tokens, artifacts)
        self.open(model, artifacts)

    def open(self, subject: GenerationModel, artifacts: Artifacts) -> None:
        self.opened = open_retriever(artifacts, self)
        self.passages = Passages(artifacts.path("passage-tokens"))

    def request(
        self, model: GenerationModel, prompt: Sequence[int], limit: int, phases: Phases
    ) -> AbstractContextManager[IterativeRaLM]:
        """Raises `RequestError` when the prompt does not fit together with passage and output."""
        retriever, passages = self._ready()
        return nullcontext(IterativeRaLM(
            model, retriever, passages, prompt, limit, phases, interval=self.interval, prefetch=self.prefetch,
            query_tokens=self.query_tokens, passage_tokens=self._passage_tokens(model, prompt, limit), cache=self.cache,
        ))  # fmt: skip

    def scores(self, model: GenerationModel, prompt: Sequence[int], output: list[int]) -> torch.Tensor:
        retriever, passages = self._ready()
        context = list(prompt) or [model.start_id]
        asked = [*context, *output[: len(output) // self.interval * self.interval]][-self.query_tokens :]
        query = retriever.encode(model.tokenizer.decode(asked, skip_special_tokens=True))
        found = retriever.search([query], 1)[0]
        most = self._passage_tokens(model, prompt, self.limit)
        passage = passages.tokens(int(found[0]), most) if len(found) else []
        return Reader(model).read([*passage, *context, *output])

    def counters(self) -> dict[str, float]:
        """Passages of the knowledge base."""
        return {"passages": float(len(self.passages))} if self.passages is not None else {}

    def _passage_tokens(self, model: GenerationModel, prompt: Sequence[int], limit: int) -> int:
        """Tokens of a passage that fit together with prompt and output."""
        most = min(model.window - limit - len(prompt), self.passage_tokens)
        if most < min(LEAST, self.passage_tokens):
            raise RequestError(
                f"a prompt of {len(prompt)} tokens and an output of {limit} leave no place for a passage in the window "
                f"of {model.window}; shorten the prompt or lower the limit"
            )
        return most

    def _ready(self) -> tuple[PassageRetriever, Passages]:
        if self.opened is None or self.passages is None:
            raise RuntimeError(f"{type(self).__name__} answers after fit or open")
        return self.opened, self.passages


@method(
    "ralmspec",
    contract="retrieval-generation",
    needs=("causal", "passages"),
    baseline="ralmseq",
    summary="iterative RaLM with speculative retrieval and batched verification, the same output",
)
class RalmSpec(Speculative, RalmSeq):
    """RaLMSpec (Algorithm 1) with any of P, S and A.

    prefetch: passages that every retrieval adds to the cache; 1 is the plain top-1 update, 20 the paper's P. A step
    without speculation searches as `ralmseq` does and adds one, but for a request's first; guesses after many of them
    are right less often.
    shared: later requests speculate from what earlier ones since `open` found, too. The cache is never emptied: a
    prompt that comes again finds all its passages there. A timing that repeats its prompts, as the bench's does, is
    then one of repeated prompts and says nothing of new ones. scheduler to asynchronous: see
    `Speculative`. The other parameters are those of `ralmseq`, which must be given the same.
    """

    prefetch: Annotated[int, Field(ge=1)] = 1
    shared: bool = False

    def open(self, subject: GenerationModel, artifacts: Artifacts) -> None:
        super().open(subject, artifacts)
        retriever, _ = self._ready()
        queries = [retriever.encode("the")] * 2
        self.begin_anew(lambda: retriever.search(queries, self.prefetch, single_thread=True))
        self.cache = PassageCache(retriever) if self.shared else None
