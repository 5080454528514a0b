"""Adaptive softmax (Grave et al., 2017), distilled from a trained output layer.

Words are sorted by frequency. The head scores the `head` most frequent words and one logit per tail of rarer words.
Tail i = 1, 2, ... has rank d / divisor^i. It is opened only if its logit could put one of its words among the k best:
P(word) <= P(tail). The tradeoff is the size of the head.

It is distilled, not trained with the language model, so that all methods answer for the same layer. Head rows are the
layer's own. A tail's rows are their best approximation of the tail's rank (by SVD; exact at full rank). A tail's logit
is the least-squares fit of its words' log-sum-exp over training contexts. With exact fits this is the layer's softmax.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from harness.common.errors import RequestError
from harness.common.progress import Progress
from harness.contracts import Artifacts, OutputLayer, SoftmaxScreening, TopK
from harness.plan.registry import method
from methods.softmax import arrays
from methods.softmax.candidates import COUNTERS, SAMPLE, by_frequency, read
from methods.softmax.completion import principal_directions
from methods.softmax.inputs import checked_layer, checked_query, checked_target, checked_training, not_finite

TOGETHER = 256  # contexts of one product while fitting
RIDGE = 1e-4  # of the least-squares fit, relative to the contexts' mean square


@method(
    "adaptive-softmax",
    contract="softmax-screening",
    baseline="exact",
    summary="frequent words first, tails of rare words only when needed (Grave et al., 2017)",
)
class AdaptiveSoftmax(SoftmaxScreening):
    """Knob: `head`, the number of frequent words always scored; `tails` and `divisor` shape the rest.

    Errors of all calls: `RequestError` for a wrong shape, k outside 1..L, NaN or infinity; of `fit`: a head that
    leaves no word for the tails.
    """

    measures = COUNTERS

    head: Annotated[int, Field(ge=1)] = 1500
    tails: Annotated[int, Field(ge=1)] = 2
    divisor: Annotated[int, Field(ge=1)] = 4
    contexts: Annotated[int, Field(ge=1)] = 20_000

    def fit(
        self, layer: OutputLayer, contexts: NDArray[np.float32], targets: NDArray[np.int64], artifacts: Artifacts
    ) -> None:
        layer = checked_layer(layer)
        words = len(layer.weight)
        if self.head + self.tails > words:
            raise RequestError(f"a head of {self.head} and {self.tails} tails exceed {words} words; lower method.head")
        contexts, targets = checked_training(layer, contexts, targets, 1, "adaptive-softmax")
        fitted = contexts[:: -(-len(contexts) // self.contexts)]

        def build(folder: Path) -> None:
            order = by_frequency(targets, words)
            arrays.save(folder, distil(layer, fitted, order, self._cuts(words), self.divisor))

        key = {"layer": arrays.content(layer.weight, layer.bias), "contexts": arrays.content(fitted),
               "targets": arrays.content(targets), "head": self.head, "tails": self.tails,
               "divisor": self.divisor}  # fmt: skip
        artifacts.build("adaptive-softmax", key, build)
        self.open(layer, artifacts)
        k, tails = min(5, words), len(self._tail)
        opened = np.asarray([t for context in contexts[:SAMPLE] for t in self._opened(context, k)], np.int64)
        of = np.searchsorted(self._cut, np.asarray(self._place)[targets], side="right") - 1  # tail of a word, -1: head
        artifacts.values["topk_opens"] = (np.bincount(opened, minlength=tails) / min(SAMPLE, len(contexts))).tolist()
        artifacts.values["log_prob_opens"] = [float((of == t).mean()) for t in range(tails)]

    def _cuts(self, words: int) -> list[int]:
        """Frequency ranks at which tails start, in a geometric sequence; the last is L."""
        cuts = [round(self.head * (words / self.head) ** (i / self.tails)) for i in range(self.tails + 1)]
        return [min(max(cut, self.head + i), words - self.tails + i) for i, cut in enumerate(cuts)]

    def open(self, subject: OutputLayer, artifacts: Artifacts) -> None:
        from methods.softmax import kernels

        layer = checked_layer(subject)
        self._words, self._dimension = layer.weight.shape
        parts = arrays.load(artifacts.path("adaptive-softmax"))
        self._order, self._cut = parts["order"].astype(np.int64), parts["cuts"].tolist()
        self._rows, self._bias = parts["head"], parts["head_bias"]
        self._tail = [(parts[f"left{i}"], parts.get(f"right{i}"), parts[f"bias{i}"]) for i in range(len(self._cut) - 1)]
        self._parts, self._values = parts, artifacts.values
        self._logits = np.empty(len(self._rows), np.float32)
        self._select, self._log_softmax_at = kernels.select, kernels.log_softmax_at
        self._place = np.argsort(self._order).tolist()  # of a word in the order of frequency
        probe = np.zeros(self._dimension, np.float32)
        self.topk(probe, min(5, self._words))  # compile before timing
        self.log_prob(probe, 0)

    def topk(self, context: NDArray[np.float32], k: int) -> TopK:
        context = checked_query(context, k, self._words, self._dimension)
        places, logits, log_normalizer, bound = self._head_best(context, k)
        for t in self._above(bound):
            inside, within = self._tail_logits(context, t)
            take = min(k, len(inside))
            ids, best = np.empty(take, np.int64), np.empty(take, np.float32)
            self._select(inside, ids, best)
            places = np.concatenate([places, ids + self._cut[t]])
            logits = np.concatenate([logits, best + within])
        if len(logits) > k or (len(places) and places[-1] >= self._cut[0]):
            best_first = np.argsort(-logits, kind="stable")[:k]
            places, logits = places[best_first], logits[best_first]
        return TopK(self._order[places], logits, log_normalizer)

    def _head_best(
        self, context: NDArray[np.float32], k: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32], float, float]:
        """Positions and logits of the k best head words, the log-normaliser, and the k-th logit (-inf without one)."""
        logits, head = self._logits, int(self._cut[0])
        np.dot(self._rows, context, out=logits)
        logits += self._bias
        take = min(k + len(self._tail), len(logits))  # tail logits among the best are dropped
        places, best = np.empty(take, np.int64), np.empty(take, np.float32)
        log_normalizer = self._select(logits, places, best)
        if log_normalizer != log_normalizer:
            raise not_finite()
        if not places.max() < head:
            kept = places < head
            places, best = places[kept], best[kept]
        return places[:k], best[:k], log_normalizer, float(best[k - 1]) if len(best) >= k else -np.inf

    def _above(self, bound: float) -> list[int]:
        head = int(self._cut[0])
        return [t for t in range(len(self._tail)) if self._logits[head + t] > bound]

    def _opened(self, context: NDArray[np.float32], k: int) -> list[int]:
        return self._above(self._head_best(context, k)[3])

    def _tail_logits(self, context: NDArray[np.float32], t: int) -> tuple[NDArray[np.float32], float]:
        """Logits within a tail, and the summand that turns them into logits on the head's scale."""
        left, right, bias = self._tail[t]
        logits: NDArray[np.float32] = left @ (context if right is None else right @ context) + bias
        one, best = np.empty(1, np.int64), np.empty(1, np.float32)
        return logits, float(self._logits[int(self._cut[0]) + t] - self._select(logits, one, best))

    def log_prob(self, context: NDArray[np.float32], target: int) -> float:
        """Natural-log probability of any word; P(tail) P(word | tail) for the rare ones."""
        checked_target(target, self._words)
        context = checked_query(context, 1, self._words, self._dimension)
        np.dot(self._rows, context, out=self._logits)
        self._logits += self._bias
        place, cuts = self._place[target], self._cut
        t = 0
        while t < len(self._tail) and place >= cuts[t]:
            t += 1
        if t == 0:
            value = self._log_softmax_at(self._logits, place)
        else:
            left, right, bias = self._tail[t - 1]
            logits = left @ (context if right is None else right @ context)
            logits += bias
            value = self._log_softmax_at(self._logits, cuts[0] + t - 1)
            value += self._log_softmax_at(logits, place - cuts[t - 1])
        if value != value:
            raise not_finite()
        return float(value)

    def counters(self) -> dict[str, float]:
        """Costs of the head and the opened tails: the average of a top-5 over training contexts, and, for `log_prob_*`,
        of the probability of a training word, which opens at most its own tail."""
        sizes = [[left.size + (0 if right is None else right.size), len(left)] for left, right, _ in self._tail]
        answers: dict[str, float] = {}
        for prefix, opens in (("", "topk_opens"), ("log_prob_", "log_prob_opens")):
            products, words = np.asarray(self._values.get(opens, [0.0] * len(sizes))) @ np.asarray(sizes)
            answers[f"{prefix}multiply_adds"] = float(self._rows.size + products)
            answers[f"{prefix}mean_candidates"] = float(len(self._rows) + words)
            answers[f"{prefix}bytes_read"] = read(self._rows.size + products, len(self._rows) + words)
        return {**answers, "extra_bytes": float(sum(array.nbytes for array in self._parts.values()))}


def distil(
    layer: OutputLayer, contexts: NDArray[np.float32], order: NDArray[np.int32], cuts: list[int], divisor: int
) -> dict[str, NDArray[Any]]:
    """The arrays of an adaptive softmax: `head` [cuts[0] + tails, d] with `head_bias`, and for tail i its rows
    `left{i}` [n, q] with `bias{i}`, to be multiplied with `right{i}` [q, d] (absent at full rank)."""
    dimension = layer.weight.shape[1]
    parts: dict[str, NDArray[Any]] = {"order": order, "cuts": np.asarray(cuts)}
    inside = np.ones((len(contexts), dimension + 1), np.float32)
    inside[:, :-1] = contexts
    sums = np.empty((len(contexts), len(cuts) - 1))
    for i, (start, stop) in enumerate(pairwise(cuts)):
        members = order[start:stop]
        left, bias = layer.weight[members], layer.bias[members]
        rank = max(1, dimension // divisor ** (i + 1))
        if rank < min(left.shape):
            right = principal_directions(left)[:rank]
            parts[f"right{i}"] = right
            left = left @ right.T
        parts[f"left{i}"], parts[f"bias{i}"] = left, bias
        sums[:, i] = _tail_sums(left, parts.get(f"right{i}"), bias, contexts, f"tail {i + 1}")
    square = inside.T.astype(np.float64) @ inside
    square += RIDGE * np.trace(square) / len(square) * np.eye(len(square))
    fit = np.linalg.solve(square, inside.T @ sums).T  # [tails, d + 1]
    members = order[: cuts[0]]
    parts["head"] = np.concatenate([layer.weight[members], fit[:, :-1]]).astype(np.float32)
    parts["head_bias"] = np.concatenate([layer.bias[members], fit[:, -1]]).astype(np.float32)
    return parts


def _tail_sums(
    left: NDArray[np.float32], right: NDArray[np.float32] | None, bias: NDArray[np.float32],
    contexts: NDArray[np.float32], name: str,
) -> NDArray[np.float64]:  # fmt: skip
    """Log-sum-exp float64 [n] of a tail's logits for every context."""
    progress = Progress()
    result = np.empty(len(contexts))
    for start in range(0, len(contexts), TOGETHER):
        block = contexts[start : start + TOGETHER]
        logits = (block if right is None else block @ right.T) @ left.T + bias
        peak = logits.max(axis=1)
        result[start : start + len(block)] = peak + np.log(np.exp(logits - peak[:, None]).sum(axis=1, dtype=np.float64))
        progress.update(f"distilling {name}", start + len(block), len(contexts), "contexts")
    return result
