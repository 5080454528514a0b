"""What a row states of its timing samples: derived in one place, and derived again when the row is read.

So a row's speedup, interval and decision cannot be edited, and rows of an older schema are judged by today's rule.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from harness.common.statistics import interval_over_processes
from harness.contracts import ratios
from harness.measure.decision import Summary, decide, of_row

if TYPE_CHECKING:
    from harness.contracts.rows import Row


def state(row: Row) -> None:
    """Set what follows from the samples in `row["timing"]["processes"]` and `["objections"]`: metrics, intervals,
    decision and reason."""
    if row["timing"] is None:
        return
    metrics, intervals, evidence = _derived(row)
    _follow(row["metrics"], metrics)
    _follow(row["intervals"], intervals)
    row["timing"].update(evidence)


def pooled(rows: Sequence[Row]) -> Row:
    """One row of all repeats of a cell, oldest first: the newest, with the timing processes of all of them.

    This is the rule by which a cell that was measured more than once is printed, stated before anything is measured:
    no repeat displaces another. A copy of a row (kept, and still among the runs) is no repeat.
    """
    parts: list[dict[str, Any]] = []
    for row in rows:
        if row["timing"] is not None and all(row["timing"]["processes"] != part["processes"] for part in parts):
            parts.append(row["timing"])
    if len(parts) < 2:
        return rows[-1]
    newest = copy.deepcopy(rows[-1])
    newest["timing"] = {
        **parts[-1],
        "processes": [process for part in parts for process in part["processes"]],
        "objections": list(dict.fromkeys(reason for part in parts for reason in part["objections"])),
        "disturbed": "; ".join(dict.fromkeys(part["disturbed"] for part in parts if part["disturbed"])),
        "repeats": len(parts),
    }
    state(newest)
    return newest


def shape(row: Row) -> tuple[int, int]:
    """Timing processes of a row, and the fewest pairs of one."""
    processes = (row["timing"] or {}).get("processes") or []
    return len(processes), min((len(process["pairs"]) for process in processes), default=0)


def repeats(rows: Sequence[Row]) -> list[Row]:
    """The newest of one cell's rows and the earlier ones that repeat it, oldest first: of the same key and the same
    state of the code, and ended well."""
    newest = rows[-1]

    def same(row: Row) -> bool:
        code = [(one["code"].get("revision"), one["code"].get("dirty")) for one in (row, newest)]
        return row["status"] == "ok" and row["hashes"].get("key") == newest["hashes"].get("key") and code[0] == code[1]

    return [*filter(same, rows[:-1]), newest] if newest["status"] == "ok" and newest["hashes"].get("key") else [newest]


def altered(row: Row) -> list[str]:
    """Names of what a row states otherwise than its samples do; empty for a sound row. A row without samples (an
    analysis, a cell that is not timed) may not state a speedup over a baseline."""
    if row["timing"] is None:
        return ["speedup"] if row["speed_baseline"] and row["metrics"].get("speedup") is not None else []
    metrics, intervals, evidence = _derived(row)
    stated: list[tuple[str, Any, Any]] = [
        *((name, row["metrics"].get(name), value) for name, value in metrics.items()),
        *((f"interval of {name}", row["intervals"].get(name), value) for name, value in intervals.items()),
        *((name, row["timing"].get(name), value) for name, value in evidence.items() if name != "reason"),
    ]
    return [name for name, stored, follows in stated if not _equal(stored, follows)]


def _derived(row: Row) -> tuple[dict[str, float | None], dict[str, list[float] | None], dict[str, Any]]:
    """Metrics, intervals, and the keys of `timing` that follow from a row's samples; None for what does not."""
    timing: Mapping[str, Any] = row["timing"] or {}
    summary = decide(of_row(timing["processes"]), exploratory=row["scale"] == "mini", objections=timing["objections"])
    if row["speed_baseline"] is None:  # an analysis, which names its ratios
        summary.speedup = summary.interval = None
    interval, hot = summary.interval, summary.hot_interval
    metrics = _metrics(summary)
    intervals = {
        "speedup": list(interval) if interval else None,
        "hot_loop_speedup": list(hot) if hot else None,
    }
    for name, ratio in (timing.get("ratios") or {}).items():
        metrics[name], intervals[name] = _over_processes([ratios.value(ratio, one) for one in timing["processes"]])
    evidence = {
        "noise_floor": summary.noise_floor, "repeat": summary.repeat, "items": summary.items,
        "timed_items": summary.timed, "outliers": summary.outliers, "decision": summary.decision,
        "reason": summary.reason,
    }  # fmt: skip
    return metrics, intervals, evidence


def _over_processes(values: Sequence[float | None]) -> tuple[float | None, list[float] | None]:
    """The median of a ratio, one value a process, and the interval of exactly that; None where a process has none."""
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None, None
    interval = interval_over_processes(known)
    return median(known), list(interval) if interval else None


def _metrics(summary: Summary) -> dict[str, float | None]:
    """Seconds of a pass (`wall_clock_s`) and of an item (`latency_s`), and the speedup."""
    return {
        "wall_clock_s": summary.method_s,
        "latency_s": summary.method_item_s,  # of one item: context, sentence, prompt, stream
        "latency_std_s": summary.method_std_s,
        "baseline_wall_clock_s": summary.baseline_s,
        "baseline_latency_s": summary.baseline_item_s,
        "speedup": summary.speedup,
        "hot_loop_speedup": summary.hot,
    }


def _follow(stated: dict[str, Any], following: Mapping[str, Any]) -> None:
    """State what follows, and no longer what does not."""
    for name, value in following.items():
        if value is None:
            stated.pop(name, None)
        else:
            stated[name] = value


def _equal(stored: Any, follows: Any) -> bool:
    if isinstance(follows, float) and isinstance(stored, float | int):
        return math.isclose(stored, follows, rel_tol=1e-9)
    if isinstance(follows, Sequence) and not isinstance(follows, str):
        return isinstance(stored, list) and len(stored) == len(follows) and all(map(_equal, stored, follows))
    return bool(stored == follows)
