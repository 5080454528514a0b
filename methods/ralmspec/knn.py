"""`knnlm-sequential` and `knnlm-speculative`: kNN-LM generation served sequentially and by speculation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from harness.contracts import (
    Artifacts,
    Decoded,
    GenerationModel,
    KeyKind,
    LanguageModel,
    Phases,
    RetrievalGeneration,
)
from harness.errors import RequestError
from harness.registry import method
from methods.knnlm.index import Backend
from methods.knnlm.retrieval import Distance, Retriever
from methods.knnlm.scorer import KnnLm
from methods.ralmspec.neighbors import KnnGeneration, Mixture
from methods.ralmspec.retrievers import single_threaded
from methods.ralmspec.service import Scheduling, Service
from methods.ralmspec.sources import LocalityCache, SpeculationSource
from methods.ralmspec.speculation import follow

if TYPE_CHECKING:
    from numpy.typing import NDArray


class ServedKnnLm(KnnLm):
    """kNN-LM's datastore, index and weights, for generation."""

    def ready(self) -> tuple[Retriever, tuple[float, float]]:
        """The opened retriever, and lambda and temperature in use."""
        return self._ready()


class _KnnServing(RetrievalGeneration):
    """What both have in common: kNN-LM's datastore, index and weights."""

    def __init__(self, knnlm: ServedKnnLm, key: KeyKind) -> None:
        self.knnlm = knnlm
        self.key = key

    def fit(
        self,
        model: GenerationModel,
        knowledge: Sequence[str] | Sequence[NDArray[np.int64]],
        validation: Sequence[Any],
        artifacts: Artifacts,
    ) -> None:
        """Build datastore and index of `knowledge`, streams of token ids, and tune on `validation`, streams too."""
        if not len(knowledge):
            raise RequestError("the knowledge base is empty; kNN-LM needs at least one stream of token ids")
        streams = [stream for stream in knowledge if not isinstance(stream, str)]
        if len(streams) < len(knowledge):
            raise RequestError("kNN-LM serving needs streams of token ids as its knowledge base, not passages of text")
        self.knnlm.fit(_language_model(model), streams, validation, artifacts)

    def open(self, subject: GenerationModel, artifacts: Artifacts) -> None:
        self.knnlm.open(_language_model(subject), artifacts)
        self.knnlm.ready()[0].index.load()

    def counters(self) -> dict[str, float]:
        """As kNN-LM's."""
        return self.knnlm.counters()

    def process(
        self,
        model: GenerationModel,
        prompt: Sequence[int],
        limit: int,
        phases: Phases,
        keys: list[Any],
        source: SpeculationSource | None = None,
    ) -> KnnGeneration:
        """One request. Raises `RequestError` when prompt and output do not fit the window."""
        if len(prompt) + limit > model.window:
            raise RequestError(
                f"a prompt of {len(prompt)} tokens and an output of {limit} exceed the window of {model.window}; "
                "shorten the prompt or lower the limit"
            )
        retriever, (lambda_, temperature) = self.knnlm.ready()
        aside = Retriever(retriever.store, single_threaded(retriever.index), retriever.options)
        mixture = Mixture(retriever.store.values, lambda_, temperature)
        return KnnGeneration(model, retriever, aside, mixture, source, prompt, limit, phases, keys)


@method(
    "knnlm-sequential",
    contract="retrieval-generation",
    needs=("causal", "reference-text"),
    summary="kNN-LM generation: a search before every token",
)
class KnnSequential(_KnnServing):
    """kNN-LM (Khandelwal et al., 2020) continuing a prompt greedily. Parameters as those of `knnlm`."""

    def __init__(
        self,
        *,
        k: int = 1024,
        key: KeyKind = "last_ffn_input",
        index: Backend = "flat",
        distance: Distance = "exact",
        links: int = 16,
        ef: int = 1024,
        nlist: int = 0,
        nprobe: int = 32,
        lambda_: float | Literal["tuned"] = "tuned",
        temperature: float | Literal["tuned"] = "tuned",
        seed: int = 0,
        memory_gb: float = 8.0,
    ) -> None:
        super().__init__(
            ServedKnnLm(
                k=k, key=key, index=index, distance=distance, links=links, ef=ef, nlist=nlist, nprobe=nprobe,
                lambda_=lambda_, temperature=temperature, seed=seed, memory_gb=memory_gb,
            ),
            key,
        )  # fmt: skip

    def generate(self, model: GenerationModel, prompt: Sequence[int], limit: int, phases: Phases) -> Decoded:
        with _language_model(model).capture(self.key) as keys:
            process = self.process(model, prompt, limit, phases, keys)
            record = follow(process, phases)
        return Decoded(process.output, record.trace(by_time=False))


@method(
    "knnlm-speculative",
    contract="retrieval-generation",
    needs=("causal", "reference-text"),
    baseline="knnlm-sequential",
    summary="kNN-LM generation with speculated neighbours and batched verification, the same output",
)
class KnnSpeculative(_KnnServing):
    """RaLMSpec for kNN-LM (section 5.3), its verification asynchronous too if wanted.

    following, nearest, searches: of the spatial-locality cache (`methods.ralmspec.sources`). scheduler, stride, window,
    gamma_max, asynchronous: as `ralmspec`'s. The other parameters are those of `knnlm-sequential`, to be given alike.
    """

    def __init__(
        self,
        *,
        following: int = 10,
        nearest: int = 128,
        searches: int = 64,
        scheduler: Scheduling = "os3",
        stride: int = 3,
        window: int = 5,
        gamma_max: float = 0.6,
        asynchronous: bool = False,
        k: int = 1024,
        key: KeyKind = "last_ffn_input",
        index: Backend = "flat",
        distance: Distance = "exact",
        links: int = 16,
        ef: int = 1024,
        nlist: int = 0,
        nprobe: int = 32,
        lambda_: float | Literal["tuned"] = "tuned",
        temperature: float | Literal["tuned"] = "tuned",
        seed: int = 0,
        memory_gb: float = 8.0,
    ) -> None:
        for name, value, least in (("following", following, 0), ("nearest", nearest, 1), ("searches", searches, 1)):
            if value < least:
                raise RequestError(f"{name}={value} is not at least {least}")
        super().__init__(
            ServedKnnLm(
                k=k, key=key, index=index, distance=distance, links=links, ef=ef, nlist=nlist, nprobe=nprobe,
                lambda_=lambda_, temperature=temperature, seed=seed, memory_gb=memory_gb,
            ),
            key,
        )  # fmt: skip
        self.service = Service(scheduler, stride, window, gamma_max, asynchronous)
        self.locality = {"following": following, "nearest": nearest, "searches": searches}

    def source(self) -> SpeculationSource:
        """A fresh source for one request."""
        return LocalityCache(self.knnlm.ready()[0].store, **self.locality)

    def generate(self, model: GenerationModel, prompt: Sequence[int], limit: int, phases: Phases) -> Decoded:
        with _language_model(model).capture(self.key) as keys:
            process = self.process(model, prompt, limit, phases, keys, self.source())
            record = self.service.serve(process, phases)
        return Decoded(process.output, self.service.trace(record))

    def counters(self) -> dict[str, float]:
        """kNN-LM's, and `limit`: the speedup that the formula allows for what was measured."""
        return super().counters() | self.service.counters()


def _language_model(model: GenerationModel) -> LanguageModel:
    if model.language_model is None:
        raise RequestError(f"{model.name} cannot give the keys of a datastore; kNN-LM serving needs a causal model")
    return model.language_model
