"""What the latency tasks share: metrics of served requests, and prompts drawn by seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from harness.contracts import Decoded
from harness.settings import Measure
from harness.statistics import block_bootstrap, mean_interval

T = TypeVar("T")


def serving_metrics(answers: Sequence[Decoded]) -> dict[str, Measure]:
    """What a request took and how its speculation went; 95% intervals by a bootstrap over requests, from 10 on.

    Seconds are of the main thread in the quality pass, each prompt once (the paired timing is another run); the first
    request warms the process up and is left out of them. Means a request: `generation_s`, `retrieval_s` (with the
    encoding of queries), `output_tokens`, `searches`, `rollbacks`. Ratios of sums over requests: `retrieval_share` of
    the seconds, `sequential_share` of steps taken without speculation, `mean_stride` of all decisions (0 for a step
    without speculation), `speculation_accuracy`: matched of those verified up to the first mismatch.
    """
    warm = answers[1:] or answers
    generation, retrieval = (_counted(warm, name) for name in ("generation_s", "retrieval_s"))
    strides = [a.trace.series.get("strides", ()) for a in answers]
    sequential = _counted(answers, "sequential")
    measures = {
        "generation_s": _mean(generation),
        "retrieval_s": _mean(retrieval),
        "retrieval_share": _ratio(retrieval, generation + retrieval),
        "output_tokens": _mean(np.asarray([len(a.ids) for a in answers], float)),
        "searches": _mean(_counted(answers, "searches")),
        "sequential_share": _ratio(sequential, sequential + _counted(answers, "speculated")),
        "rollbacks": _mean(_counted(answers, "rollbacks")),
        "mean_stride": _ratio(
            np.asarray([sum(s) for s in strides], float), np.asarray([len(s) for s in strides], float)
        ),
        "speculation_accuracy": _ratio(_counted(answers, "matched"), _counted(answers, "verified")),
    }
    return {name: measure for name, measure in measures.items() if measure is not None}


def drawn(items: Sequence[T], number: int, seed: int) -> list[T]:
    """At most `number` items drawn by seed, without replacement."""
    order = np.random.default_rng(seed).permutation(len(items))[:number]
    return [items[int(i)] for i in order]


def number_of(prompts: Sequence[object], wanted: int) -> int | str:
    """How many prompts there are, for a row's facts; said in words when they are fewer than wanted."""
    return len(prompts) if len(prompts) >= wanted else f"{len(prompts)} of the {wanted} asked for"


Column = np.ndarray[tuple[int], np.dtype[np.float64]]


def _counted(answers: Sequence[Decoded], name: str) -> Column:
    values = [a.trace.counters.get(name, a.trace.timing_counters.get(name, 0.0)) for a in answers]
    return np.asarray(values, np.float64)


def _mean(values: Column) -> Measure:
    low, high = mean_interval(values) or (None, None)
    return Measure(float(values.mean()) if len(values) else 0.0, low, high)


def _ratio(parts: Column, wholes: Column) -> Measure | None:
    """sum(parts) / sum(wholes) over requests; None where there is no whole, no interval where a resample has none."""
    if not wholes.sum():
        return None
    with np.errstate(invalid="ignore", divide="ignore"):
        low, high = block_bootstrap([parts, wholes], lambda part, whole: part / whole, 1) or (None, None)
    if low is None or high is None or not np.isfinite([low, high]).all():
        low = high = None
    return Measure(float(parts.sum() / wholes.sum()), low, high)
