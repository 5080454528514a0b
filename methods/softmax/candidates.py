"""The base of methods that choose candidate words for a context and score them exactly."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from harness.contracts import Artifacts, OutputLayer, SoftmaxScreening, TopK
from harness.contracts.metrics import Metric
from methods.softmax import arrays
from methods.softmax.completion import Completion
from methods.softmax.inputs import checked_layer, checked_query, checked_target, checked_training, not_finite

SAMPLE = 512  # training contexts on which `fit` counts the candidates of an average call
COUNTERS = (  # multiply-adds are the harness's metric, since it divides by them
    Metric("mean_candidates", "candidates a context", better="lower", kind="counter"),
    Metric("extra_bytes", "memory beyond the layer", "bytes", "lower", "memory"),
)


class CandidateSets(SoftmaxScreening):
    """Answers from the exact logits of a candidate set, which a subclass chooses."""

    measures = COUNTERS

    _layer: OutputLayer

    @abstractmethod
    def words(self, context: NDArray[np.float32], k: int) -> NDArray[np.int64]:
        """Ids of the candidate set of at least k words, in any order."""

    def log_prob(self, context: NDArray[np.float32], target: int) -> float:
        """Natural-log probability of a word among the candidates, `-inf` for every other word (L2S, section 4.2)."""
        checked_target(target, len(self._layer.weight))
        context = checked_query(context, 1, *self._layer.weight.shape)
        ids = self.words(context, 1)
        logits = self._logits(context, ids)
        own = logits[ids == target]
        return float(own[0] - np.logaddexp.reduce(logits)) if len(own) else float("-inf")

    def _logits(self, context: NDArray[np.float32], ids: NDArray[np.int64]) -> NDArray[np.float32]:
        logits: NDArray[np.float32] = self._layer.weight[ids] @ context + self._layer.bias[ids]
        if not np.isfinite(logits).all():
            raise not_finite()
        return logits


class CandidateSearch(CandidateSets):
    """A search structure over the layer finds candidates. Frequent words are added if there are fewer than k.

    `_find(context)` writes ids into `_ids` and returns how many. Errors of all calls: `RequestError` for a wrong
    shape, k outside 1..L, NaN or infinity. Not to be called from two threads at once (scratch arrays).
    """

    _completion: Completion | None = None  # set by a subclass that gives every word a probability

    @abstractmethod
    def _find(self, context: NDArray[np.float32]) -> int:
        """Number of distinct candidates written to `_ids`."""

    def _prepare(self, subject: OutputLayer, frequent: NDArray[np.int32]) -> None:
        """Scratch for candidates and logits; `frequent` int32 [L] has all words, most frequent in training first."""
        from methods.softmax import kernels

        self._layer = checked_layer(subject)
        words = len(self._layer.weight)
        self._ids = np.empty(words, np.int32)
        self._scratch = np.empty(words, np.float32)
        self._frequent = frequent
        self._score, self._fill = kernels.score_candidates, kernels.fill_candidates
        self._completed = kernels.completed_log_prob

    def topk(self, context: NDArray[np.float32], k: int) -> TopK:
        weight, bias = self._layer.weight, self._layer.bias
        context = checked_query(context, k, *weight.shape)
        count = self._find_at_least(context, k)
        ids, logits = np.empty(k, np.int64), np.empty(k, np.float32)
        log_normalizer = self._score(weight, bias, context, self._ids, count, self._scratch, ids, logits)
        if log_normalizer != log_normalizer:
            raise not_finite()
        return TopK(ids, logits, log_normalizer)

    def log_prob(self, context: NDArray[np.float32], target: int) -> float:
        """Natural-log probability of a word. Outside the candidate set it is `-inf`, unless there is a completion:
        then the softmax is over exact logits inside and low-rank logits outside (L2S, appendix A.3)."""
        completion = self._completion
        if completion is None:
            return super().log_prob(context, target)
        weight, bias = self._layer.weight, self._layer.bias
        checked_target(target, len(weight))
        context = checked_query(context, 1, *weight.shape)
        count = self._find(context)
        value = self._completed(
            weight, bias, context, self._ids, count, self._scratch, *completion.factors, completion.logits, target
        )
        if value != value:
            raise not_finite()
        return float(value)

    def words(self, context: NDArray[np.float32], k: int) -> NDArray[np.int64]:
        return self._ids[: self._find_at_least(context, k)].astype(np.int64)

    def _find_at_least(self, context: NDArray[np.float32], k: int) -> int:
        count = self._find(context)
        return count if count >= k else self._more(count, k)

    def _more(self, count: int, k: int) -> int:
        """Number of candidates in `_ids`, k at least, after `_find` has written only `count`."""
        return int(self._fill(self._ids, count, k, self._frequent))

    def _mean_found(self, contexts: NDArray[np.float32]) -> float:
        """Mean number of candidates over the first training contexts (which also warms up)."""
        return float(np.mean([self._find(context) for context in contexts]))


class SavedSearch(CandidateSearch):
    """A search in arrays that `fit` makes of the layer, and saves with the words by their frequency in training."""

    name: ClassVar[str]  # of the method and its artifact

    @abstractmethod
    def _made(self, layer: OutputLayer) -> dict[str, NDArray[Any]]:
        """The arrays."""

    def _check(self, words: int, dimension: int) -> None:
        """Raise `RequestError` for parameters that do not fit a layer of this size."""

    @abstractmethod
    def _scratch_of(self, words: int, dimension: int) -> None:
        """What `_find` needs besides the arrays, `_saved`."""

    def _key(self) -> dict[str, Any]:
        """The parameters that the arrays depend on."""
        return {}

    def fit(
        self, layer: OutputLayer, contexts: NDArray[np.float32], targets: NDArray[np.int64], artifacts: Artifacts
    ) -> None:
        layer = checked_layer(layer)
        self._check(*layer.weight.shape)
        contexts, targets = checked_training(layer, contexts, targets, 1, self.name)

        def build(folder: Path) -> None:
            frequent = by_frequency(targets, len(layer.weight))
            arrays.save(folder, {**self._made(layer), "frequent": frequent})

        key = {"layer": arrays.content(layer.weight, layer.bias), "targets": arrays.content(targets), **self._key()}
        artifacts.build(self.name, key, build)
        self.open(layer, artifacts)
        artifacts.values["mean_candidates"] = self._mean_found(contexts[:SAMPLE])

    def open(self, subject: OutputLayer, artifacts: Artifacts) -> None:
        self._saved = arrays.load(artifacts.path(self.name))
        self._prepare(subject, self._saved.pop("frequent"))
        self._values = artifacts.values
        words, dimension = self._layer.weight.shape
        self._scratch_of(words, dimension)
        self.topk(np.zeros(dimension, np.float32), 1)

    def _counted(self, multiply_adds: float) -> dict[str, float]:
        """The counters. multiply_adds: of finding the candidates, which are then scored."""
        found = float(self._values.get("mean_candidates", 0.0))
        multiply_adds += found * self._layer.weight.shape[1]
        return costs(multiply_adds, found, size(self._saved.values()), read(multiply_adds, found))


def by_frequency(targets: NDArray[np.int64], words: int) -> NDArray[np.int32]:
    """All word ids int32 [words], most frequent among the training targets first, ties by id."""
    return np.argsort(-np.bincount(targets, minlength=words), kind="stable").astype(np.int32)


def read(multiply_adds: float, words: float) -> float:
    """Bytes of float32 weights and biases that a call reads: each weight is multiplied once, each word has a bias."""
    return 4 * (multiply_adds + words)


def size(arrays: Iterable[NDArray[Any]]) -> int:
    """Bytes of arrays."""
    return sum(array.nbytes for array in arrays)


def costs(multiply_adds: float, mean_candidates: float, extra_bytes: float, bytes_read: float) -> dict[str, float]:
    """The counters of a method. extra_bytes: of memory beyond the output layer, without scratch."""
    counted = {"multiply_adds": multiply_adds, "mean_candidates": mean_candidates}
    counted |= {"extra_bytes": extra_bytes, "bytes_read": bytes_read}
    return {name: float(value) for name, value in counted.items()}
