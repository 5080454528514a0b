"""What the latency tasks share: metrics of served requests, and the timed subset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from harness.contracts import Decoded
from harness.settings import Measure
from harness.statistics import mean_interval

T = TypeVar("T")


def serving_metrics(answers: Sequence[Decoded]) -> dict[str, Measure]:
    """Per request, means with intervals: generation_s and retrieval_s (seconds of the main thread in the quality pass,
    one run, not the paired timing) and output length; over all: retrieval_share of these seconds, speculation_accuracy
    (matched of those verified up to the first mismatch), mean_stride, rollbacks and searches a request."""
    seconds = {
        name: np.asarray([a.trace.timing_counters.get(name, 0.0) for a in answers])
        for name in ("generation_s", "retrieval_s")
    }
    result = {name: _mean(values) for name, values in seconds.items()}
    spent = sum(float(values.sum()) for values in seconds.values())
    if spent:
        result["retrieval_share"] = Measure(float(seconds["retrieval_s"].sum()) / spent)
    result["output_tokens"] = _mean(np.asarray([len(a.ids) for a in answers], float))
    result["searches"] = _mean(_counted(answers, "searches"))
    if verified := _counted(answers, "verified").sum():
        result["speculation_accuracy"] = Measure(float(_counted(answers, "matched").sum() / verified))
        result["rollbacks"] = _mean(_counted(answers, "rollbacks"))
        strides = [s for a in answers for s in a.trace.series.get("strides", ())]
        result["mean_stride"] = Measure(float(np.mean(strides)))
    return result


def drawn(items: Sequence[T], number: int, seed: int) -> list[T]:
    """At most `number` items drawn by seed, without replacement."""
    order = np.random.default_rng(seed).permutation(len(items))[:number]
    return [items[int(i)] for i in order]


def _counted(answers: Sequence[Decoded], name: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    values = [a.trace.counters.get(name, a.trace.timing_counters.get(name, 0.0)) for a in answers]
    return np.asarray(values, np.float64)


def _mean(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Measure:
    low, high = mean_interval(values) or (None, None)
    return Measure(float(values.mean()) if len(values) else 0.0, low, high)
