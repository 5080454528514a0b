"""What a row states of its timing samples: derived in one place, and derived again when the row is read.

So a row's speedup, interval and decision cannot be edited, and rows of an older schema are judged by today's rule.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from harness import ratios
from harness.statistics import interval_over_processes
from harness.timing import Summary, decide, of_row

if TYPE_CHECKING:
    from harness.store import Row


def state(row: Row) -> None:
    """Set what follows from the samples in `row["timing"]["processes"]` and `["objections"]`: metrics, intervals,
    decision and reason."""
    if row["timing"] is None:
        return
    metrics, intervals, evidence = _derived(row)
    row["metrics"].update(metrics)
    row["intervals"].update(intervals)
    row["timing"].update(evidence)


def pooled(rows: Sequence[Row]) -> Row:
    """One row of all repeats of a cell, oldest first: the newest, with the timing processes of all of them.

    This is the rule by which a cell that was measured more than once is printed, stated before anything is measured:
    no repeat displaces another.
    """
    timed = [row for row in rows if row["timing"] is not None]
    if len(timed) < 2:
        return rows[-1]
    newest = copy.deepcopy(rows[-1])
    parts = [row["timing"] or {} for row in timed]
    newest["timing"] = {
        **parts[-1],
        "processes": [process for part in parts for process in part["processes"]],
        "objections": list(dict.fromkeys(reason for part in parts for reason in part["objections"])),
        "disturbed": "; ".join(dict.fromkeys(part["disturbed"] for part in parts if part["disturbed"])),
        "repeats": len(timed),
    }
    state(newest)
    return newest


def altered(row: Row) -> list[str]:
    """Names of what a row states otherwise than its samples do; empty for a sound row."""
    if row["timing"] is None:
        return []
    metrics, intervals, evidence = _derived(row)
    stated: list[tuple[str, Any, Any]] = [
        *((name, row["metrics"].get(name), value) for name, value in metrics.items()),
        *((f"interval of {name}", row["intervals"].get(name), value) for name, value in intervals.items()),
        *((name, row["timing"].get(name), value) for name, value in evidence.items()),
    ]
    for name in ("speedup", *(row["timing"].get("ratios") or ())):  # what does not follow at all
        stated += [(name, row["metrics"].get(name), None)] if name not in metrics else []
        stated += [(f"interval of {name}", row["intervals"].get(name), None)] if name not in intervals else []
    return [name for name, said, follows in stated if not _equal(said, follows)]


def _derived(row: Row) -> tuple[dict[str, float], dict[str, list[float]], dict[str, Any]]:
    """Metrics, intervals, and the keys of `timing` that follow from a row's samples."""
    timing: Mapping[str, Any] = row["timing"] or {}
    summary = decide(of_row(timing["processes"]), exploratory=row["scale"] == "mini", objections=timing["objections"])
    if row["speed_baseline"] is None:  # an analysis, which names its ratios
        summary.speedup = summary.interval = None
    metrics = _metrics(summary, row["counters"].get("limit"))
    intervals = {}
    for name, ratio in (timing.get("ratios") or {}).items():
        values = [found for process in timing["processes"] if (found := ratios.value(ratio, process)) is not None]
        if len(values) == len(timing["processes"]):
            metrics[name] = median(values)
            if (interval := interval_over_processes(values)) is not None:
                intervals[name] = list(interval)
    if summary.interval is not None:
        intervals["speedup"] = list(summary.interval)
        if limit := row["counters"].get("limit"):
            intervals["share_of_limit"] = [end / limit for end in summary.interval]
    if summary.hot_interval is not None:
        intervals["hot_loop_speedup"] = list(summary.hot_interval)
    evidence = {
        "noise_floor": summary.noise_floor, "repeat": summary.repeat, "items": summary.items,
        "timed_items": summary.timed, "outliers": summary.outliers, "decision": summary.decision,
        "reason": summary.reason,
    }  # fmt: skip
    return metrics, intervals, evidence


def _metrics(summary: Summary, limit: float | None) -> dict[str, float]:
    """Seconds of a pass (`wall_clock_s`) and of an item (`latency_s`), the speedup and its share of a counted limit."""
    known = {
        "wall_clock_s": summary.method_s,
        "latency_s": summary.method_item_s,  # of one item: context, sentence, prompt, stream
        "latency_std_s": summary.method_std_s,
        "baseline_wall_clock_s": summary.baseline_s,
        "baseline_latency_s": summary.baseline_item_s,
        "speedup": summary.speedup,
        "hot_loop_speedup": summary.hot,
        "share_of_limit": summary.speedup / limit if summary.speedup is not None and limit else None,
    }
    return {name: value for name, value in known.items() if value is not None}


def _equal(said: Any, follows: Any) -> bool:
    if isinstance(follows, float) and isinstance(said, float | int):
        return math.isclose(said, follows, rel_tol=1e-9)
    if isinstance(follows, Sequence) and not isinstance(follows, str):
        return isinstance(said, list) and len(said) == len(follows) and all(map(_equal, said, follows))
    return bool(said == follows)
