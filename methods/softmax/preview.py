"""The base of methods that preview the logits of all words cheaply and score the best of them exactly."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from harness.contracts import OutputLayer
from methods.softmax.candidates import CandidateSearch
from methods.softmax.inputs import checked_query, checked_target, not_finite


@dataclass(kw_only=True)
class Preview(CandidateSearch):
    """Knob: `refined` (words scored exactly; k if that is more). Errors as for `CandidateSearch`."""

    refined: Annotated[int, Field(ge=1)] = 200

    @abstractmethod
    def _preview(self, context: NDArray[np.float32], out: NDArray[np.float32]) -> None:
        """Write the previews of all logits to `out` [L]."""

    def _open(self, subject: OutputLayer) -> None:
        """The last step of `open`."""
        from methods.softmax import kernels

        self._prepare(subject, np.empty(0, np.int32))
        words, dimension = self._layer.weight.shape
        self._n = min(self.refined, words)
        self._previewed = np.empty(words, np.float32)
        self._at_least, self._log_prob = kernels.at_least, kernels.refined_log_prob
        probe = np.zeros(dimension, np.float32)
        self.topk(probe, 1)  # compile before timing
        self.log_prob(probe, 0)

    def _find(self, context: NDArray[np.float32]) -> int:
        self._preview(context, self._previewed)
        return self._more(0, self._n)

    def _more(self, count: int, k: int) -> int:
        """Write the ids of the k best previews."""
        # values only: a vectorised partition, twice as fast as argpartition
        best = np.partition(self._previewed, len(self._previewed) - k)[-k:]
        return int(self._at_least(self._previewed, best[0], np.count_nonzero(best == best[0]), self._ids))

    def log_prob(self, context: NDArray[np.float32], target: int) -> float:
        """Natural-log probability under the softmax of exact logits of the refined words and previews of all others, as
        in SVD-softmax's paper. The normaliser of `topk` sums over the refined words only."""
        weight, bias = self._layer.weight, self._layer.bias
        checked_target(target, len(weight))
        context = checked_query(context, 1, *weight.shape)
        count = self._find(context)
        value = self._log_prob(weight, bias, context, self._ids, count, self._scratch, self._previewed, target)
        if value != value:
            raise not_finite()
        return float(value)
