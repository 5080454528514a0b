"""What the harness itself measures, and what any name in a row means.

Apart from `harness.contracts.metrics`, because a changed label here must not invalidate what was measured.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from harness.contracts.metrics import Metric

if TYPE_CHECKING:
    from harness.contracts.rows import Row

OWN = (
    # what a timing sample says (`harness.measure.evidence`)
    Metric("speedup", unit="×", better="higher", kind="speed", relative=True),
    Metric("hot_loop_speedup", "hot loop", "×", "higher", "speed", relative=True),
    Metric("wall_clock_s", "time of a pass", "s", "lower", "time"),
    Metric("baseline_wall_clock_s", "baseline's time of a pass", "s", "lower", "time"),
    Metric("latency_s", "time per item", "s", "lower", "time"),
    Metric("latency_std_s", "deviation of the time per item", "s", "lower", "time"),
    Metric("baseline_latency_s", "baseline's time per item", "s", "lower", "time"),
    # what fitting and memory cost (`harness.measure.records`)
    Metric("fit_s", "fit", "s", "lower", "time"),
    Metric("memory_mib", "memory", "MiB", "lower", "memory"),
    Metric("baseline_memory_mib", "baseline's memory", "MiB", "lower", "memory"),
    Metric("fit_memory_mib", "memory of the fit", "MiB", "lower", "memory"),
    Metric("fits", kind="counter"),
    # how close answers are to the baseline's (`harness.measure.drivers`)
    Metric("perplexity_difference", better="lower"),
    Metric("improvement_pct", "perplexity saved", "%", "higher"),
    Metric("perplexity_ratio", better="lower"),
    Metric("precision_at_*", "precision@*", better="higher", relative=True),
    Metric("exact_match", better="higher"),
    Metric("differing", "differing outputs", better="lower"),
    Metric("widest_gap", "widest gap of logits", better="lower"),
    Metric("wide_differences", better="lower"),
    # what answers and methods count, as the contracts name it (`harness.measure.drivers`, `harness.measure.worker`)
    Metric("tokens", kind="counter"),
    Metric("searches", better="lower", kind="counter"),
    Metric("foss", "saved searches (FoSS)", kind="counter"),
    Metric("iterations", better="lower", kind="counter"),
    Metric("iterations_by_item", "iterations an output", better="lower", kind="counter"),
    Metric("accepted_tokens", "mean acceptance length", better="higher", kind="counter"),
    Metric("accepted_tokens_by_item", "mean acceptance length by item", better="higher", kind="counter"),
    Metric("accepted_at_*", "accepted at position *", better="higher", kind="counter"),
    Metric("blocks_of_*", "iterations accepting * tokens or more, not twice as many", kind="counter"),
    Metric("multiply_adds", better="lower", kind="counter"),
)
# how far answers are from those of the row's fidelity baseline
DISTANCES = ("perplexity_difference", "improvement_pct", "perplexity_ratio", "bleu_difference")


def of(row: Row, name: str) -> Metric:
    """What a number of a row is. A name that the harness owns means the same in every row; any other means what the
    row says, and one that nobody declared is shown plainly: a counter among the counters, else a quality."""
    for metric in (*OWN, *(Metric(declared, **about) for declared, about in row["described"].items())):
        if (found := metric.called(name)) is not None:
            return found
    counted = name in row["counters"] and name not in row["metrics"]
    return Metric(name, label=name.replace("_", " "), kind="counter" if counted else "quality")


def among(rows: Iterable[Row], name: str) -> Metric:
    """What a number of several rows is, as the first of them says that has it."""
    having = (row for row in rows if name in row["metrics"] or name in row["counters"])
    first = next(having, None)
    return of(first, name) if first is not None else own(name)


def own(name: str) -> Metric:
    """A name without a row: the harness's own metric, or the words of the name."""
    words = Metric(name, label=name.replace("_", " "))
    return next((found for metric in OWN if (found := metric.called(name)) is not None), words)
