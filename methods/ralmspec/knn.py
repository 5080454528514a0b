"""`knnlm-sequential` and `knnlm-speculative`: kNN-LM generation served sequentially and by speculation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from harness.contracts import Artifacts, GenerationModel, KeyKind, LanguageModel, Phases
from harness.errors import RequestError
from harness.measure.phases import NoPhases
from harness.plan.registry import method
from methods.knnlm.index import Backend, needs_build
from methods.knnlm.ranges import within
from methods.knnlm.retrieval import Distance, Retriever
from methods.knnlm.scorer import COUNTERS, KnnLm
from methods.ralmspec.neighbors import KnnGeneration, Mixture
from methods.ralmspec.retrieval.retrievers import read_through, single_threaded
from methods.ralmspec.service import Scheduling, Service
from methods.ralmspec.serving import Serving, Speculation
from methods.ralmspec.sources import LocalityCache, SpeculationSource

if TYPE_CHECKING:
    from numpy.typing import NDArray

SEARCHES = 20  # that open the index, for keys of the datastore
WIDTH = 64  # neighbours that a search finds at least; reading the keys, or walking the graph, costs the same for one


class ServedKnnLm(KnnLm):
    """kNN-LM's datastore, index and weights, for generation."""

    def ready(self) -> tuple[Retriever, tuple[float, float]]:
        """The opened retriever, and lambda and temperature in use."""
        return self._ready()


@method(
    "knnlm-sequential",
    contract="retrieval-generation",
    needs=("causal", "reference-text"),
    summary="kNN-LM generation: a search before every token",
)
@dataclass(kw_only=True)
class KnnSequential(Serving):
    """kNN-LM (Khandelwal et al., 2020) continuing a prompt greedily. Parameters as those of `knnlm`.

    A search finds at least 64 neighbours, of which the k nearest are mixed: with the baseline as with speculation, so
    that both rank what a graph search reached alike.
    """

    measures = COUNTERS

    k: int = 1024
    key: KeyKind = "last_ffn_input"
    index: Backend = "flat"
    distance: Distance = "exact"
    links: int = 16
    ef: int = 1024
    nlist: int = 0
    nprobe: int = 32
    lambda_: float | Literal["tuned"] = "tuned"
    temperature: float | Literal["tuned"] = "tuned"
    seed: int = 0
    memory_gb: float = 8.0

    def __post_init__(self) -> None:
        self.knnlm = ServedKnnLm(
            k=self.k, key=self.key, index=self.index, distance=self.distance, links=self.links, ef=self.ef,
            nlist=self.nlist, nprobe=self.nprobe, lambda_=self.lambda_, temperature=self.temperature, seed=self.seed,
            memory_gb=self.memory_gb,
        )  # fmt: skip

    @property
    def random_fit(self) -> bool:
        return self.knnlm.random_fit

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
        self.open(model, artifacts)

    def open(self, subject: GenerationModel, artifacts: Artifacts) -> None:
        """Everything that a search reads or compiles is at hand then."""
        self.knnlm.open(_language_model(subject), artifacts)
        retriever, _ = self._ready()
        if needs_build(retriever.options.index):  # faiss maps what it searches
            read_through(artifacts.path("index"))
        retriever.index.load()
        store = retriever.store
        for entry in np.linspace(0, store.entries - 1, SEARCHES, dtype=np.int64):
            retriever.search(np.asarray(store.keys[entry][None], np.float32), NoPhases())

    def counters(self) -> dict[str, float]:
        """As kNN-LM's."""
        return self.knnlm.counters()

    def source(self) -> SpeculationSource | None:
        """Where the guesses of one request come from; None in the baseline."""
        return None

    @contextmanager
    def request(
        self, model: GenerationModel, prompt: Sequence[int], limit: int, phases: Phases
    ) -> Iterator[KnnGeneration]:
        """Raises `RequestError` when prompt and output do not fit the window."""
        if len(prompt) + limit > model.window:
            raise RequestError(
                f"a prompt of {len(prompt)} tokens and an output of {limit} exceed the window of {model.window}; "
                "shorten the prompt or lower the limit"
            )
        retriever, weights = self._ready()
        aside = _alone(retriever)
        mixture = Mixture(retriever.store.values, *weights)
        with _language_model(model).capture(self.key) as keys:
            yield KnnGeneration(model, retriever, aside, self.k, mixture, self.source(), prompt, limit, phases, keys)

    def scores(self, model: GenerationModel, prompt: Sequence[int], output: list[int]) -> torch.Tensor:
        with self.request(model, [*prompt, *output], 0, NoPhases()) as process:
            step = process.begin()
            (found,) = process.search([step.query], aside=False)
            return torch.from_numpy(process.mixture.log_probs(step.log_lm, found.first(self.k)))

    def _ready(self) -> tuple[Retriever, tuple[float, float]]:
        """The retriever that requests search by, and lambda and temperature."""
        retriever, weights = self.knnlm.ready()
        options = replace(retriever.options, k=max(self.k, WIDTH))
        return Retriever(retriever.store, retriever.index, options), weights


@method(
    "knnlm-speculative",
    contract="retrieval-generation",
    needs=("causal", "reference-text"),
    baseline="knnlm-sequential",
    summary="kNN-LM generation with speculated neighbours and batched verification, the same output",
)
@dataclass(kw_only=True)
class KnnSpeculative(Speculation, KnnSequential):
    """RaLMSpec for kNN-LM (section 5.3), its verification asynchronous too if wanted.

    following, nearest, searches: of the spatial-locality cache (`methods.ralmspec.sources`), whose `nearest` neighbours
    of a search are of the 64 or k that it finds: with k = 1, prefetching in the sense of P, which the paper does not
    combine with kNN-LM; nearest = 1 is its cache. scheduler to asynchronous:
    see `Speculation`. The other parameters are those of `knnlm-sequential`, to be given alike.
    """

    following: int = 10
    nearest: int = 64
    searches: int = 32
    scheduler: Scheduling = "os3"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, least in (("following", 0), ("nearest", 1), ("searches", 1)):
            within(name, getattr(self, name), least)
        if self.nearest > max(self.k, WIDTH):
            raise RequestError(
                f"nearest={self.nearest} exceeds the {max(self.k, WIDTH)} neighbours that a search finds"
            )
        self.service: Service = self.new_service()

    def open(self, subject: GenerationModel, artifacts: Artifacts) -> None:
        super().open(subject, artifacts)
        self.service.reset()
        retriever = _alone(self._ready()[0])
        queries = np.zeros((2, retriever.store.dimension), np.float32)
        self.service.warm(lambda: retriever.search(queries, NoPhases()))

    def source(self) -> SpeculationSource:
        store = self.knnlm.ready()[0].store
        return LocalityCache(store, self.following, self.nearest, self.searches)


def _alone(retriever: Retriever) -> Retriever:
    """The same for a worker thread."""
    return Retriever(retriever.store, single_threaded(retriever.index), retriever.options)


def _language_model(model: GenerationModel) -> LanguageModel:
    if model.language_model is None:
        raise RequestError(f"{model.name} cannot give the keys of a datastore; kNN-LM serving needs a causal model")
    return model.language_model
