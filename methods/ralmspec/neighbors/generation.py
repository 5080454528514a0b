"""kNN-LM serving as a process: a search before every token (section 5.3 of Zhang et al., 2024).

A guess counts as right if it gives the same token as the true neighbours, even from other neighbours. A wrong guess
costs no generation: the step's model output is kept, and the true neighbours are mixed into it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from harness.common.phases import NoPhases
from harness.contracts import GenerationModel, Phases
from methods.decoding.engine.session import Engine
from methods.knnlm.mixture import log_weights
from methods.knnlm.search import DatastoreSearch
from methods.nearest.distances import ranked
from methods.ralmspec.core.generation import Generation, GenerationStep
from methods.ralmspec.neighbors.sources import SpeculationSource

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Neighbors:
    """The search result of one query: squared L2 distances float32 [k] ascending, ids int64 [k], -1 for none."""

    distances: NDArray[np.float32]
    ids: NDArray[np.int64]

    def first(self, k: int) -> Neighbors:
        """The k nearest of them."""
        return Neighbors(self.distances[:k], self.ids[:k])


@dataclass(frozen=True, slots=True)
class Mixture:
    """Eq. 2 and 3 of Alon et al. (2022), for the most probable token only."""

    values: NDArray[np.int32]  # of the datastore's entries
    lambda_: float
    temperature: float

    def best(self, log_lm: NDArray[np.floating], alone: int, found: Neighbors) -> int:
        """argmax of lambda p_kNN + (1 - lambda) p_LM; ties: the lowest token. Only the neighbours' tokens and `alone`,
        the LM's own best token, can be the maximum."""
        near, weights = self._weighed(found)
        if not len(near):
            return alone
        tokens, place = np.unique(near, return_inverse=True)
        tokens = np.append(tokens, alone)
        mass = np.append(np.bincount(place, weights), 0.0)
        if len(same := np.flatnonzero(tokens[:-1] == alone)):
            mass[-1] = mass[same[0]]
        mixed = self.lambda_ * mass + (1 - self.lambda_) * np.exp(log_lm[tokens].astype(np.float64))
        return int(tokens[mixed == mixed.max()].min())

    def log_probs(self, log_lm: NDArray[np.floating], found: Neighbors) -> NDArray[np.float64]:
        """log of the whole mixture [V]; that of the LM if there are no neighbours or lambda is 0."""
        near, weights = self._weighed(found)
        if not len(near):
            return log_lm.astype(np.float64)
        mass = np.bincount(near, weights, len(log_lm))
        with np.errstate(divide="ignore"):
            mixed: NDArray[np.float64] = np.log(
                self.lambda_ * mass + (1 - self.lambda_) * np.exp(log_lm.astype(np.float64))
            )
        return mixed

    def _weighed(self, found: Neighbors) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Tokens [n] of the neighbours and their weights [n]; n = 0 if lambda is 0."""
        near = (found.ids >= 0) & (self.lambda_ > 0)
        return self.values[found.ids[near]], np.exp(log_weights(found.distances[near][None], self.temperature))[0]


@dataclass(slots=True)
class TokenStep(GenerationStep):
    """A step of one token. source: the source's state before it. log_lm float [V]: the model's log-probabilities.
    alone: the token that the model would choose without retrieval."""

    source: Any
    log_lm: NDArray[np.floating]
    alone: int


@dataclass(slots=True)
class Answer:
    """A token, and the neighbours that gave it: the guessed ones, or all that a search found."""

    token: int
    found: Neighbors = field(compare=False)


class KnnGeneration(Generation[TokenStep, Neighbors]):
    """One request. `keys` receives the model's keys while it reads (`LanguageModel.capture`)."""

    def __init__(
        self,
        model: GenerationModel,
        engine: Engine,
        datastore: DatastoreSearch,
        k: int,
        mixture: Mixture,
        source: SpeculationSource,
        prompt: Sequence[int],
        limit: int,
        phases: Phases,
        keys: list[torch.Tensor],
    ) -> None:
        """k: neighbours that are mixed. A search may find more; the source learns all."""
        super().__init__(model, engine, prompt, limit, phases)
        self.datastore = datastore
        self.worker_search = datastore.single_threaded()
        self.k = k
        self.mixture = mixture
        self.source = source
        self.keys = keys
        self.guessed = 0  # entries ranked for guesses
        self.alone: list[int] = []  # per output token, what the LM alone would have generated there

    def begin(self) -> TokenStep:
        with self.phases("generate"):
            self.keys.clear()
            logits = self.feed(self.context[self.session.lengths[0] :])
            wide = logits if logits.element_size() > 2 else logits.float()
            log_lm = wide.log_softmax(-1).cpu().numpy()
            query = self.keys[-1].reshape(-1, self.keys[-1].shape[-1])[-1].float().cpu().numpy()
            return TokenStep(query, self.mark(), self.source.state(), log_lm, int(log_lm.argmax()))

    def guess(self, step: TokenStep) -> Answer:
        with self.phases("speculate"):
            found = self._speculated(step.query)
            return Answer(self.mixture.best(step.log_lm, step.alone, found), found)

    def answer(self, step: TokenStep, truth: Neighbors) -> Answer:
        return Answer(self.mixture.best(step.log_lm, step.alone, truth.first(self.k)), truth)

    def take(self, step: TokenStep, answer: Answer) -> None:
        self.context.append(answer.token)
        self.alone.append(step.alone)
        self.source.followed(answer.found.ids, answer.token)

    def search(self, queries: Sequence[Any], single_thread: bool, prefetch: bool = True) -> list[Neighbors]:
        distances, ids = (self.worker_search if single_thread else self.datastore).search(np.stack(queries), NoPhases())
        return [Neighbors(d, i.astype(np.int64)) for d, i in zip(distances, ids, strict=True)]

    def learn(self, truths: Sequence[Neighbors]) -> None:
        for truth in truths:
            self.source.searched(truth.ids)

    def counters(self) -> dict[str, float]:
        """`unaided`: output tokens that the LM alone would also have generated after the same context."""
        return {"unaided": float(sum(a == b for a, b in zip(self.alone, self.output, strict=True)))}

    def searched(self) -> float:
        return self.datastore.bytes_read + self.worker_search.bytes_read + self.guessed * self.datastore.entry_bytes

    def rewind(self, step: TokenStep) -> None:
        super().rewind(step)
        del self.alone[len(self.context) - self.prompt_length :]
        self.source.restore(step.source)

    def _speculated(self, query: NDArray[np.float32]) -> Neighbors:
        """The k of the source's entries nearest to the query."""
        ids = self.source.entries()
        self.guessed += len(ids)
        distances = self.datastore.distances(query, ids)
        if len(ids) > self.k:
            nearest = np.sort(np.argpartition(distances, self.k - 1)[: self.k])
            distances, ids = distances[nearest], ids[nearest]
        ordered = ranked(distances[None], ids[None])
        return Neighbors(ordered[0][0], ordered[1][0])
