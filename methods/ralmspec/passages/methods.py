"""`ralmseq` and `ralmspec`: iterative RaLM served sequentially and by speculation."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from pydantic import Field

from harness.common.documents import content_hash
from harness.common.phases import NoPhases
from harness.contracts import Artifacts, GenerationModel, Phases, Streams
from harness.plan.registry import method
from methods.decoding.engine.engines import shared_engine
from methods.nearest.opening import needs_build
from methods.ralmspec.core.serving import Sequential, Speculative, room
from methods.ralmspec.passages.generation import IterativeRaLM
from methods.ralmspec.passages.opening import build_retriever, open_retriever, passages_of
from methods.ralmspec.passages.retriever import PassageCache, RetrieverOptions
from methods.ralmspec.passages.tokens import Passages, build_passages


@dataclass(kw_only=True)
class IterativeOptions(RetrieverOptions):
    """Parameters of iterative RaLM; those of the retriever are inherited from `RetrieverOptions`.

    interval: tokens between retrievals. query_tokens: last tokens of the context that make the query (Algorithm 1: all;
    Ram et al., 2023: 32). passage_tokens: most tokens of a passage; it is also cut to the space that prompt and output
    leave in the model's window.
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

    prefetch = 1  # both are parameters of `ralmspec`
    shared = False

    @property
    def random_fit(self) -> bool:
        """True for `hnsw` and `ivf`: several threads build graphs, and k-means starts at random."""
        return needs_build(self.dense)

    def fit(
        self,
        model: GenerationModel,
        knowledge: Sequence[str] | Streams,
        validation: Sequence[Any],
        artifacts: Artifacts,
    ) -> None:
        """Build the retriever over `knowledge`, passages of text. Raises `RequestError` when there are none."""
        texts = passages_of(knowledge)
        text_hash = content_hash(texts)
        build_retriever(texts, text_hash, artifacts, self)
        build_passages(model, texts, text_hash, self.passage_tokens, artifacts)
        self.open(model, artifacts)

    def open(self, subject: GenerationModel, artifacts: Artifacts) -> None:
        self.opened = open_retriever(artifacts, self)
        self.cache = PassageCache(self.opened) if self.shared else None  # None: each request has its own
        self.passages = Passages(artifacts.path("passage-tokens"))
        self._engine = shared_engine(subject)

    def request(
        self, model: GenerationModel, prompt: Sequence[int], limit: int, phases: Phases
    ) -> AbstractContextManager[IterativeRaLM]:
        """model: the one given to `open`. Raises `RequestError` when prompt and output do not fit the window."""
        return nullcontext(IterativeRaLM(
            model, self._engine, self.opened, self.passages, prompt, limit, phases, interval=self.interval,
            prefetch=self.prefetch, query_tokens=self.query_tokens,
            passage_tokens=min(room(model, prompt, limit), self.passage_tokens), cache=self.cache,
        ))  # fmt: skip

    def scores(self, model: GenerationModel, prompt: Sequence[int], output: list[int], limit: int) -> torch.Tensor:
        whole = len(output) // self.interval * self.interval
        with self.request(model, prompt, limit, NoPhases()) as process:
            process.context += output[:whole]
            step = process.begin()
            (truth,) = process.search([step.query], single_thread=False, prefetch=False)
            process.context += output[whole:]
            return process.logits(process.answer(step, truth))

    def found(self, model: GenerationModel, context: Sequence[int], k: int) -> list[int]:
        """The best passages for a context, at most k, best first."""
        text = model.tokenizer.decode(context[-self.query_tokens :], skip_special_tokens=True)
        found: list[int] = self.opened.search([self.opened.encode(text)], k)[0].tolist()
        return found

    def counters(self) -> dict[str, float]:
        """Passages of the knowledge base."""
        return {"passages": float(len(self.passages))}


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
    without speculation searches as `ralmseq` does and adds one; a request's first step, and one in which OS3 asks for a
    guess, add `prefetch`. After many steps without speculation guesses are right less often.
    shared: requests also speculate from the passages of earlier requests since `open`. The cache is never emptied, so a
    repeated prompt finds all its passages in it. The bench times every pass on fresh prompts; only the last pair's are
    timed again.
    scheduler to asynchronous: see `Speculative`. The other parameters must equal those of `ralmseq`.
    """

    redo = True
    prefetch: Annotated[int, Field(ge=1)] = 1
    shared: bool = False
