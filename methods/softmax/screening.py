"""The fast path of all cluster screens (L2S and spherical k-means): store the screen, answer from it.

The cost of a call is the bytes read: r clusters of d bytes (int8) and Lbar candidate rows of 4 d bytes (float32),
against 4 L d of the exact layer. Clusters are quantised after learning, and candidate sets are made for the quantised
clusters. So quantisation changes only the clustering and costs no other precision.

At d = 200, L = 10,000, r = 100 and Lbar = 102 a call takes 3.4 us on one core, half of it Python's call, and the exact
layer 105. The words that are a candidate of any cluster are packed (`pack`, 20% of the layer here), so that they stay
in the inner caches: rows indexed in W take 1.4 times as long, and copies per cluster gain nothing.

If k exceeds the candidate set's size, the sets of the next best clusters (by v_t . h) are added until there are k
words. If all clusters together have fewer, all words are candidates. The union is the candidate set of that call, also
for its `log_normalizer`. `log_prob` does the same, with k = 1, for a cluster whose set is empty.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy import empty, ndarray
from numpy.typing import NDArray
from pydantic import Field

from harness.common.errors import RequestError
from harness.contracts import Artifacts, OutputLayer, TopK
from methods.softmax import arrays
from methods.softmax.candidates import CandidateSets, costs, read, size
from methods.softmax.completion import Completable, Completion
from methods.softmax.inputs import checked_layer, checked_query, checked_target, checked_training, not_finite
from methods.softmax.knapsack import candidate_sets, mean_size
from methods.softmax.labels import training_labels

LABELS = 5  # y_i is the exact top-5 throughout the paper
FLOAT, INTEGER = np.dtype(np.float32), np.dtype(np.int64)
CONTIGUOUS = (FLOAT.itemsize,)  # strides of a vector


@dataclass(kw_only=True)
class ClusterScreen(Completable, CandidateSets):
    """Clusters of contexts, each with a candidate set that is scored exactly. A subclass learns the clusters.

    clusters: r. budget: B, mean candidates per context. lambda_: weight of unneeded candidates (Eq. 6). iterations,
    sample: of spherical k-means, its steps and contexts.
    """

    clusters: Annotated[int, Field(ge=1)] = 100
    budget: Annotated[float, Field(gt=0)] = 120
    lambda_: Annotated[float, Field(ge=0)] = 0.0003
    iterations: Annotated[int, Field(ge=0)] = 15
    sample: Annotated[int, Field(ge=1)] = 100_000
    seed: Annotated[int, Field(ge=0)] = 0

    @property
    def random_fit(self) -> bool:
        return True

    @abstractmethod
    def _learn(self, contexts: NDArray[np.float32], labels: NDArray[np.int32], words: int) -> NDArray[np.float32]:
        """Clusters float32 [r, d] from contexts [n, d] and labels int32 [n, 5]."""

    @abstractmethod
    def _key(self) -> dict[str, Any]:
        """All parameters that `_learn` depends on, the method's name included."""

    # ------------------------------------------------------------ learning

    def fit(
        self, layer: OutputLayer, contexts: NDArray[np.float32], targets: NDArray[np.int64], artifacts: Artifacts
    ) -> None:
        """Learn clusters and candidate sets from training contexts [n, d] (targets are checked, not used).

        Raises `RequestError` for fewer usable contexts than clusters, a budget above L, or inputs `inputs` refuses.
        """
        layer = checked_layer(layer)
        words = len(layer.weight)
        if self.budget > words:
            raise RequestError(f"budget {self.budget:g} is above the vocabulary's {words} words; lower method.budget")
        if self.completion_rank:
            Completion.fit(layer, self.completion_rank, arrays.content(layer.weight, layer.bias), artifacts)
        contexts, _ = checked_training(layer, contexts, targets, self.clusters, f"clusters={self.clusters}")
        labels, data = training_labels(layer, contexts, min(LABELS, words), artifacts)

        def build(folder: Path) -> None:
            # the tables of learning have no other words
            occurring: NDArray[Any] = np.unique(labels)
            if self.budget >= len(occurring):
                occurring = np.arange(words)
            compact = np.searchsorted(occurring, labels).astype(np.int32)
            learned = self._learn(contexts, compact, len(occurring))
            screen = make_screen(learned, contexts, compact, len(occurring), self.budget, self.lambda_)
            arrays.save(folder, {**screen, "members": occurring[screen["members"]].astype(np.int32)})

        key = {**self._key(), **data, "clusters": self.clusters, "budget": self.budget, "lambda": self.lambda_,
               "seed": self.seed}  # fmt: skip
        artifacts.build("softmax-screen", key, build)

    # ------------------------------------------------------------ answering

    def open(self, subject: OutputLayer, artifacts: Artifacts) -> None:
        from methods.softmax import kernels

        layer = checked_layer(subject)
        self._words, self._dimension = layer.weight.shape
        screen = arrays.load(artifacts.path("softmax-screen"))
        self._clusters, self._starts, self._members = screen["clusters"], screen["starts"], screen["members"]
        self._mean = float(screen["mean_candidates"])
        if self._clusters.shape[1] != self._dimension or self._members.max(initial=0) >= self._words:
            raise RequestError(f"the screen was not learned for a layer [{self._words}, {self._dimension}]; fit again")
        self._layer, self._shape = layer, (self._dimension,)
        self._packed = pack(layer, self._clusters, self._starts, self._members)
        self._topk, self._topk_many = kernels.screened_topk, kernels.screened_topk_many
        self._completion = Completion.open(layer, artifacts) if self.completion_rank else None
        self._log_prob = kernels.screened_log_prob
        probe = np.zeros((1, self._dimension), np.float32)  # compile before anybody times
        self.topk(probe[0], 1)
        self.topk_many(probe, 1)
        if self._completion:
            self.log_prob(probe[0], 0)

    def topk(self, context: NDArray[np.float32], k: int) -> TopK:
        # the checks of `checked_query`, but cheaper: Python takes half the time of so short a call
        usual = context.__class__ is ndarray and context.dtype is FLOAT and context.strides == CONTIGUOUS
        if not (usual and context.shape == self._shape and 1 <= k <= self._words):
            context = checked_query(context, k, self._words, self._dimension)
        ids, logits = empty(k, INTEGER), empty(k, FLOAT)
        log_normalizer = self._topk(*self._packed, context, ids, logits)
        if log_normalizer != log_normalizer:
            return self._joined_topk(context, k)
        return TopK(ids, logits, log_normalizer)

    def topk_many(self, contexts: NDArray[np.float32], k: int) -> TopK:
        """`topk` for contexts [n, d] in one compiled loop, with bitwise equal answers."""
        contexts = np.ascontiguousarray(contexts, np.float32)
        if not len(contexts):
            return super().topk_many(contexts, k)
        checked_query(contexts[0], k, self._words, self._dimension)
        ids, logits = np.empty((len(contexts), k), np.int64), np.empty((len(contexts), k), np.float32)
        normalizers = np.empty(len(contexts), np.float32)
        self._topk_many(*self._packed, contexts, ids, logits, normalizers)
        for row in np.flatnonzero(np.isnan(normalizers)):
            answer = self._joined_topk(contexts[row], k)
            ids[row], logits[row], normalizers[row] = answer.ids, answer.logits, answer.log_normalizer
        return TopK(ids, logits, normalizers)

    def log_prob(self, context: NDArray[np.float32], target: int) -> float:
        """Natural-log probability of a word. Outside the candidate set it is `-inf`, unless there is a completion: then
        the softmax is over exact logits inside and low-rank logits outside (paper, appendix A.3)."""
        completion = self._completion
        if completion is None:
            return super().log_prob(context, target)
        checked_target(target, self._words)
        context = checked_query(context, 1, self._words, self._dimension)
        value = self._log_prob(
            *self._packed, completion.bias, *completion.factors, completion.logits, context, target
        )  # fmt: skip
        if value == value:
            return float(value)
        ids = self.words(context, 1)
        return completion.log_prob(context, target, ids, self._logits(context, ids))

    def counters(self) -> dict[str, float]:
        """multiply_adds: d (r + Lbar) a call, Lbar over training contexts, plus q (d + L) with a completion of rank q.
        extra_bytes: memory beyond the layer, without scratch. bytes_read: a cluster's number takes one byte."""
        factors = self._completion.factors if self._completion else ()
        completing = self._completion.multiply_adds if self._completion else 0.0
        scored = self._dimension * self._mean + completing
        return costs(
            scored + self._dimension * len(self._clusters), self._mean, size((*self._packed[:-1], *factors)),
            self._clusters.nbytes + read(scored, self._mean + (self._words if factors else 0)),
        )  # fmt: skip

    def words(self, context: NDArray[np.float32], k: int) -> NDArray[np.int64]:
        """Ids, ascending, of the candidate set that holds at least k words (see the module's docstring)."""
        from methods.softmax import kernels

        first = np.empty(1, np.int64)
        kernels.assign_quantised(self._clusters, context[None], first)
        own = self._members[self._starts[first[0]] : self._starts[first[0] + 1]]
        if len(own) >= k:  # in ascending order
            return own.astype(np.int64)
        scores = self._clusters @ context
        scores[first[0]] = np.inf
        joined: NDArray[np.int64] = np.empty(0, np.int64)
        for t in np.argsort(-scores, kind="stable"):
            joined = np.union1d(joined, self._members[self._starts[t] : self._starts[t + 1]])
            if len(joined) >= k:
                return joined
        return np.arange(self._words)

    def _joined_topk(self, context: NDArray[np.float32], k: int) -> TopK:
        if not np.isfinite(context).all():
            raise not_finite()
        ids = self.words(context, k)
        logits = self._logits(context, ids)
        best = np.argsort(-logits, kind="stable")[:k]
        return TopK(ids[best], logits[best], np.logaddexp.reduce(logits))


def pack(
    layer: OutputLayer, clusters: NDArray[np.int8], starts: NDArray[np.int64], members: NDArray[np.int32]
) -> tuple[NDArray[np.int8], NDArray[np.float32], NDArray[np.int32], NDArray[np.float32]]:
    """The first four arguments of `kernels.screened_topk`: clusters, rows, index, scratch.

    rows float32 [m, p]: weights and bias of the m words that are a candidate of any cluster, padded with zeros to a
    multiple of 16. index int32: r + 1 bounds, then the m word ids, then every cluster's candidates as row numbers;
    those of cluster t are index[index[t] : index[t + 1]].
    """
    words, places = np.unique(members, return_inverse=True)
    if not len(words):  # no cluster has a candidate: every call takes the slow path
        words = np.zeros(1, members.dtype)
    dimension = layer.weight.shape[1]
    rows = arrays.aligned(len(words), -(-(dimension + 1) // 16) * 16)
    rows[:, :dimension], rows[:, dimension] = layer.weight[words], layer.bias[words]
    head = len(starts) + len(words)
    index = np.concatenate([starts + head, words, places]).astype(np.int32)
    scratch = arrays.aligned(1, 2 * rows.shape[1] + int(np.diff(starts).max()))[0]
    scratch[dimension] = 1
    return clusters, rows, index, scratch


def make_screen(
    learned: NDArray[np.float32],
    contexts: NDArray[np.float32],
    labels: NDArray[np.int32],
    words: int,
    budget: float,
    lambda_: float,
) -> dict[str, NDArray[Any]]:
    """Quantise clusters [r, d] and make their candidate sets: `clusters` int8 [r, d], candidates of cluster t
    `members` int32[starts[t] : starts[t + 1]] ascending, `mean_candidates` over the training contexts."""
    from methods.softmax import kernels

    clusters = np.rint(learned * (127 / np.abs(learned).max())).astype(np.int8)
    assigned = np.empty(len(contexts), np.int64)
    kernels.assign_quantised(clusters, contexts, assigned)
    sets = candidate_sets(assigned, labels, len(clusters), words, budget, lambda_)
    return {
        "clusters": clusters,
        "starts": np.concatenate([[0], np.cumsum(sets.sum(axis=1))]),
        "members": np.nonzero(sets)[1].astype(np.int32),
        "mean_candidates": np.float64(mean_size(assigned, sets)),
    }
