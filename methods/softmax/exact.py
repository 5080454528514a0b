"""The exact softmax layer: the baseline of every screening method, as fast as possible.

One BLAS matrix-vector product over contiguous float32 weights, then one compiled pass that keeps the k best (no sort,
no partition of all L) and sums the exponentials. The product reads every byte of the weights and takes more than 90% of
the call. Only reading fewer bytes could make it faster.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from harness.contracts import Artifacts, OutputLayer, SoftmaxScreening, TopK
from harness.plan.registry import method
from methods.softmax.candidates import COUNTERS
from methods.softmax.inputs import checked_layer, checked_query, checked_target, not_finite

TOGETHER = 256  # contexts of one matrix-matrix product in `topk_many`


@method("exact", contract="softmax-screening", summary="full product and partial selection: the exact softmax layer")
class Exact(SoftmaxScreening):
    """Exact top-k. Errors of all calls: `RequestError` for a wrong shape, k outside 1..L, NaN or infinity."""

    measures = COUNTERS

    def open(self, subject: OutputLayer, artifacts: Artifacts) -> None:
        from methods.softmax import kernels

        layer = checked_layer(subject)
        self._weight, self._bias = layer.weight, layer.bias
        self._words, self._dimension = layer.weight.shape
        self._select, self._log_softmax_at = kernels.select, kernels.log_softmax_at
        self._logits = np.empty(self._words, np.float32)  # reused: not thread-safe
        probe = np.zeros(self._dimension, np.float32)
        self.topk(probe, 1)  # compile before timing
        self.log_prob(probe, 0)

    def topk(self, context: NDArray[np.float32], k: int) -> TopK:
        context = checked_query(context, k, self._words, self._dimension)
        logits = self._logits
        np.dot(self._weight, context, out=logits)
        logits += self._bias
        ids, best = np.empty(k, np.int64), np.empty(k, np.float32)
        log_normalizer = self._select(logits, ids, best)
        if log_normalizer != log_normalizer:
            raise not_finite()
        return TopK(ids, best, log_normalizer)

    def topk_many(self, contexts: NDArray[np.float32], k: int) -> TopK:
        """`topk` for contexts [n, d] by matrix-matrix products; logits differ from `topk`'s by rounding."""
        contexts = np.asarray(contexts)
        if not len(contexts):
            return super().topk_many(contexts, k)
        checked_query(contexts[0], k, self._words, self._dimension)
        ids, best = np.empty((len(contexts), k), np.int64), np.empty((len(contexts), k), np.float32)
        normalizers = np.empty(len(contexts), np.float32)
        for start in range(0, len(contexts), TOGETHER):
            block = np.ascontiguousarray(contexts[start : start + TOGETHER], np.float32)
            logits = block @ self._weight.T
            logits += self._bias
            for row in range(len(block)):
                normalizers[start + row] = self._select(logits[row], ids[start + row], best[start + row])
        if np.isnan(normalizers).any():
            raise not_finite()
        return TopK(ids, best, normalizers)

    def log_prob(self, context: NDArray[np.float32], target: int) -> float:
        checked_target(target, self._words)
        context = checked_query(context, 1, self._words, self._dimension)
        logits = self._logits
        np.dot(self._weight, context, out=logits)
        logits += self._bias
        value = self._log_softmax_at(logits, target)
        if value != value:
            raise not_finite()
        return float(value)

    def counters(self) -> dict[str, float]:
        words, dimension = self._words, self._dimension
        layer = float(self._weight.nbytes + self._bias.nbytes)
        return {
            "multiply_adds": float(words * dimension), "mean_candidates": float(words), "extra_bytes": 0.0,
            "bytes_read": layer, "batch_bytes_read": layer,
        }  # fmt: skip
