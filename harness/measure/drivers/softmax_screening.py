"""How softmax screening is driven."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from harness.common import statistics
from harness.common.errors import RequestError
from harness.contracts import Phases, Shared, TopK
from harness.contracts.tasks import Measure
from harness.measure.drivers.driver import Demand, Driver, Essence, batches
from harness.measure.drivers.refusals import counted, probable
from harness.plan.registry import label

ROUNDING = 1e-2  # nats by which a log-normaliser in float32 may be below the log-sum of some of its terms
PROBABILITY = "log_prob_"  # begins the names of counters of `log_prob`


class SoftmaxDriver(Driver):
    """precision@1 and precision@k: the share of the exact top-k among the method's, averaged over contexts; a word that
    the method gives twice counts once. Where the probability of given words is timed, `perplexity_ratio`: the method's
    perplexity of these words over the exact one.

    logit_error, normalizer_error: median distance in nats, where both find the same best word, of its logit and of the
    log-normaliser from the exact ones.
    """

    demands = (Demand("precision_at_1", "at least", 0.95), Demand("perplexity_ratio", "at most", 1.1))
    limits = (Demand("logit_error", "at most", 0.1),)
    consecutive = True
    material = ("layer", "contexts", "targets")

    def answer(self, method: Any, setting: Any, items: Any, phases: Phases, shared: Shared | None = None) -> list[TopK]:
        ask = self._topk(method, setting)
        size = setting.batch
        calls = [ask(context) for context in items] if size == 1 else [ask(part) for part in batches(items, size)]
        return self._sound(method, setting, len(items), calls)

    def inputs(self, setting: Any, items: NDArray[np.int64]) -> Sequence[Any]:
        contexts = np.array(setting.timed[items])
        if setting.timed_targets is not None:
            return list(zip(contexts, setting.timed_targets[items].tolist(), strict=True))
        return list(contexts) if setting.batch == 1 else batches(contexts, setting.batch)

    def vary(self, given: Any) -> Any:
        """The contexts a thousandth longer: the same words, and other bytes."""
        longer = np.float32(1.001)
        return (longer * given[0], given[1]) if isinstance(given, tuple) else longer * given

    def work(self, answers: Any) -> float | None:
        return float(len(answers))

    def asker(self, method: Any, setting: Any, phases: Phases) -> Callable[[Any], Any]:
        """Probabilities where the setting gives words to ask for, else the top-k; no record is made of each answer."""
        if setting.timed_targets is not None:
            log_prob = method.log_prob
            return lambda pair: log_prob(*pair)
        return self._topk(method, setting)

    def gathered(self, method: Any, setting: Any, items: NDArray[np.int64], calls: Sequence[Any]) -> Any:
        if setting.timed_targets is not None:
            probable(method, np.asarray(calls, np.float64), impossible=True)
            return list(calls)
        return self._sound(method, setting, len(items), calls)

    def _topk(self, method: Any, setting: Any) -> Callable[[Any], TopK]:
        k, topk = setting.k, method.topk if setting.batch == 1 else method.topk_many
        return lambda contexts: topk(contexts, k)

    def _sound(self, method: Any, setting: Any, items: int, calls: Sequence[TopK]) -> list[TopK]:
        """One answer for each context, checked together."""
        for one in calls:
            counted(method, np.shape(one.ids)[-1], setting.k, "words asked for")
            if np.shape(one.logits) != np.shape(one.ids):
                raise RequestError(f"{label(method)} gives {np.size(one.logits)} logits for {np.size(one.ids)} words")
        ids = np.concatenate([np.atleast_2d(a.ids) for a in calls])
        logits = np.concatenate([np.atleast_2d(a.logits) for a in calls])
        counted(method, ids.shape[0], items, "contexts")
        if ids.min() < 0 or ids.max() >= len(setting.layer.weight):
            raise RequestError(f"{label(method)} answers a word outside of 0 to {len(setting.layer.weight) - 1}")
        if not np.isfinite(logits).all():
            raise RequestError(f"{label(method)} gives a logit that is not finite")
        totals = np.concatenate([np.atleast_1d(a.log_normalizer) for a in calls])
        if (totals < np.logaddexp.reduce(logits, axis=-1) - ROUNDING).any():
            raise RequestError(f"{label(method)} gives a log_normalizer below that of the words that it answers")
        return [TopK(i, logit, float(total)) for i, logit, total in zip(ids, logits, totals, strict=True)]

    def costs(self, method: Any, setting: Any) -> dict[str, float]:
        """Where `log_prob` is timed, a counter called `log_prob_x` takes the place of the top-k's `x`. In a batch,
        `bytes_read` of a context is its part of `batch_bytes_read`, those of a call; unknown without it."""
        counters: dict[str, float] = dict(method.counters())
        batch = counters.pop("batch_bytes_read", None)
        if setting.batch > 1:
            counters.pop("bytes_read", None)
            counters |= {"bytes_read": batch / setting.batch} if batch is not None else {}
        plain = {name: value for name, value in counters.items() if not name.startswith(PROBABILITY)}
        if setting.timed_targets is None:
            return plain
        return plain | {n.removeprefix(PROBABILITY): v for n, v in counters.items() if n not in plain}

    def essence(self, answers: Sequence[TopK] | Sequence[float]) -> Essence:
        if isinstance(answers[0], TopK):
            found = cast("Sequence[TopK]", answers)
            return {
                "ids": np.stack([a.ids for a in found]), "logits": np.stack([a.logits for a in found]),
                "log_normalizer": np.asarray([a.log_normalizer for a in found], np.float32),
            }  # fmt: skip
        return {"log_probs": np.asarray(answers, np.float64)}

    def fidelity(self, method: Essence, baseline: Essence) -> dict[str, Measure]:
        if "log_probs" in method:
            columns = [method["log_probs"], baseline["log_probs"]]  # -inf where a word has no probability: no interval
            block = min(256, max(1, len(columns[0]) // 20))
            interval = statistics.block_jackknife(columns, lambda ours, theirs: np.exp(theirs - ours), block)
            value = float(np.exp(columns[1].mean() - columns[0].mean()))
            return {"perplexity_ratio": Measure(value, *(interval or (None, None)))}
        ours, theirs = method["ids"], baseline["ids"]
        result = {}
        for k in sorted({1, ours.shape[1]}):
            found = _precisions(ours, theirs, k)
            result[f"precision_at_{k}"] = Measure.of(found.mean(), statistics.share_interval(found))
        if "logits" in method and (same := theirs[:, 0] == ours[:, 0]).any():
            for name, of in (("logit_error", method["logits"][:, 0]), ("normalizer_error", method["log_normalizer"])):
                exact = baseline["logits"][:, 0] if name == "logit_error" else baseline["log_normalizer"]
                result[name] = Measure(float(np.median(np.abs(of - exact)[same])))
        return result

    def agreement(self, method: Essence, baseline: Essence) -> tuple[str, NDArray[np.float64]] | None:
        return ("precision_at_1", _precisions(method["ids"], baseline["ids"], 1)) if "ids" in method else None


def _precisions(ours: NDArray[np.int64], theirs: NDArray[np.int64], k: int) -> NDArray[np.float64]:
    """Of each context, the share of the exact k best words among the method's, [n]."""
    found: NDArray[np.float64] = (theirs[:, :k, None] == ours[:, None, :k]).any(axis=2).mean(axis=1)
    return found
