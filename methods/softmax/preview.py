"""The base of methods that preview the logits of all words cheaply and score the best of them exactly."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from harness.contracts import OutputLayer, SoftmaxScreening, TopK
from methods.softmax.candidates import COUNTERS
from methods.softmax.inputs import checked_layer, checked_query, checked_target, not_finite


@dataclass(kw_only=True)
class Preview(SoftmaxScreening):
    """Knob: `refined` (words scored exactly; k if that is more).

    Errors of all calls: `RequestError` for a wrong shape, k outside 1..L, NaN or infinity. Not to be called from two
    threads at once (scratch arrays).
    """

    measures = COUNTERS

    refined: Annotated[int, Field(ge=1)] = 200

    @abstractmethod
    def _preview(self, context: NDArray[np.float32], out: NDArray[np.float32]) -> None:
        """Write the previews of all logits to `out` [L]."""

    def _prepare(self, subject: OutputLayer) -> None:
        """The last step of `open`."""
        from methods.softmax import kernels

        self._layer = checked_layer(subject)
        words, dimension = self._layer.weight.shape
        self._n = min(self.refined, words)
        self._ids = np.empty(words, np.int32)
        self._previewed, self._scratch = np.empty(words, np.float32), np.empty(words, np.float32)
        self._at_least, self._score = kernels.at_least, kernels.score_candidates
        self._log_prob = kernels.refined_log_prob
        probe = np.zeros(dimension, np.float32)
        self.topk(probe, 1)  # compile before timing
        self.log_prob(probe, 0)

    def topk(self, context: NDArray[np.float32], k: int) -> TopK:
        """The normaliser sums only over the refined words; `log_prob` uses all previews, as SVD-softmax's paper."""
        weight, bias = self._layer.weight, self._layer.bias
        context = checked_query(context, k, *weight.shape)
        count = self._refine(context, max(k, self._n))
        ids, logits = np.empty(k, np.int64), np.empty(k, np.float32)
        log_normalizer = self._score(weight, bias, context, self._ids, count, self._scratch, ids, logits)
        if log_normalizer != log_normalizer:
            raise not_finite()
        return TopK(ids, logits, log_normalizer)

    def _refine(self, context: NDArray[np.float32], least: int) -> int:
        """Write the ids of the `least` best previews to `_ids`."""
        previewed = self._previewed
        self._preview(context, previewed)
        # values only: a vectorised partition, twice as fast as argpartition
        bound = np.partition(previewed, len(previewed) - least)[-least]
        count: int = self._at_least(previewed, bound, least, self._ids)
        return count

    def log_prob(self, context: NDArray[np.float32], target: int) -> float:
        checked_target(target, len(self._layer.weight))
        context = checked_query(context, 1, *self._layer.weight.shape)
        count = self._refine(context, self._n)
        weight, bias = self._layer.weight, self._layer.bias
        value = self._log_prob(weight, bias, context, self._ids, count, self._scratch, self._previewed, target)
        if value != value:
            raise not_finite()
        return float(value)
