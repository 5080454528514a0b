"""`knnlm-sequential` and `knnlm-speculative`: kNN-LM generation served sequentially and by speculation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Literal

import torch
from pydantic import Field

from harness.common.errors import RequestError
from harness.common.phases import NoPhases
from harness.contracts import Artifacts, GenerationModel, LanguageModel, Phases, Streams
from harness.plan.registry import method
from methods.decoding.engine.engines import engine_of_module
from methods.knnlm.base import DatastoreMethod
from methods.knnlm.search import DatastoreSearch
from methods.nearest.opening import needs_build, read_through
from methods.ralmspec.core.serving import Scheduling, Sequential, Speculative, room
from methods.ralmspec.neighbors.generation import KnnGeneration, Mixture
from methods.ralmspec.neighbors.sources import LocalityCache, Pointers, SpeculationSource

WIDTH = 64  # least neighbours of a search; it reads the same keys, or visits the same nodes, for one


@method(
    "knnlm-sequential",
    contract="retrieval-generation",
    needs=("causal", "reference-text"),
    summary="kNN-LM generation: a search before every token",
)
class KnnSequential(DatastoreMethod, Sequential):
    """kNN-LM (Khandelwal et al., 2020) continuing a prompt greedily. Parameters: see `DatastoreOptions`.

    A search finds at least 64 neighbours, and the k nearest are mixed. This holds for the baseline and for speculation,
    so that both rank the results of a graph search in the same way.
    """

    def fit(
        self,
        model: GenerationModel,
        knowledge: Sequence[str] | Streams,
        validation: Sequence[Any],
        artifacts: Artifacts,
    ) -> None:
        """Build datastore and index of `knowledge` and tune on `validation`, both streams of token ids."""
        if not len(knowledge):
            raise RequestError("the knowledge base is empty; kNN-LM needs at least one stream of token ids")
        streams = [stream for stream in knowledge if not isinstance(stream, str)]
        if len(streams) < len(knowledge):
            raise RequestError("kNN-LM serving needs streams of token ids as its knowledge base, not passages of text")
        self.fit_datastore(_language_model(model), streams, validation, artifacts)
        self.open(model, artifacts)

    def open(self, subject: GenerationModel, artifacts: Artifacts) -> None:
        """Afterwards a search need not read from disk."""
        self.open_datastore(_language_model(subject), artifacts)
        self._engine = engine_of_module(subject)  # its hooks give the keys
        datastore, _ = self._ready()
        if needs_build(self):  # faiss maps what it searches
            read_through(artifacts.path("index"))
        datastore.index.load()

    def source(self) -> SpeculationSource:
        """The source of one request's guesses."""
        return SpeculationSource()

    @contextmanager
    def request(
        self, model: GenerationModel, prompt: Sequence[int], limit: int, phases: Phases
    ) -> Iterator[KnnGeneration]:
        """model: the one given to `open`. Raises `RequestError` when prompt and output do not fit the window."""
        room(model, prompt, limit)
        datastore, weights = self._ready()
        mixture = Mixture(datastore.store.values, *weights)
        with _language_model(model).capture(self.key) as keys:
            yield KnnGeneration(
                model, self._engine, datastore, self.k, mixture, self.source(), prompt, limit, phases, keys
            )

    def scores(self, model: GenerationModel, prompt: Sequence[int], output: list[int], limit: int) -> torch.Tensor:
        with self.request(model, prompt, limit, NoPhases()) as process:
            process.context += output
            step = process.begin()
            (found,) = process.search([step.query], single_thread=False)
            return torch.from_numpy(process.mixture.log_probs(step.log_lm, found.first(self.k)))

    def _ready(self) -> tuple[DatastoreSearch, tuple[float, float]]:
        """The datastore's search, and (lambda, temperature)."""
        datastore, weights = self.ready()
        return DatastoreSearch(datastore.store, datastore.index, self, max(self.k, WIDTH)), weights


@method(
    "knnlm-speculative",
    contract="retrieval-generation",
    needs=("causal", "reference-text"),
    baseline="knnlm-sequential",
    summary="kNN-LM generation with speculated neighbours and batched verification, the same output",
)
class KnnSpeculative(Speculative, KnnSequential):
    """RaLMSpec for kNN-LM (section 5.3), optionally with asynchronous verification.

    guesses: from the spatial-locality `cache` of RaLMSpec, or by RetoMaton's `pointers` (`neighbors.sources`).
    following, nearest, searches: of the cache. `nearest`: neighbours of each search that it keeps, at most max(k, 64).
    nearest = 1 is the paper's cache; with k = 1 a larger one is prefetching (P), which the paper does not combine with
    kNN-LM. scheduler to asynchronous: see `Speculative`. The other parameters must equal those of `knnlm-sequential`.
    """

    redo = False
    guesses: Literal["cache", "pointers"] = "cache"
    following: Annotated[int, Field(ge=0)] = 10
    nearest: Annotated[int, Field(ge=1)] = 64
    searches: Annotated[int, Field(ge=1)] = 32
    scheduler: Scheduling = "os3"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nearest > max(self.k, WIDTH):
            raise RequestError(
                f"nearest={self.nearest} exceeds the {max(self.k, WIDTH)} neighbours that a search finds"
            )

    def source(self) -> SpeculationSource:
        store = self.ready()[0].store
        if self.guesses == "pointers":
            return Pointers(store)
        return LocalityCache(store, self.following, self.nearest, self.searches)


def _language_model(model: GenerationModel) -> LanguageModel:
    if model.language_model is None:
        raise RequestError(f"{model.name} cannot give the keys of a datastore; kNN-LM serving needs a causal model")
    return model.language_model
