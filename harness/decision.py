"""What the samples of all processes of a cell support.

- A process's ratio is the sum of the baseline's times over the sum of the method's, on the same items.
- The speedup is the median of these ratios, its interval that of the median over processes
  (`statistics.interval_over_fits`), so that it covers machine, items and, where processes open other fits, fits.
- The interval's lower bound must lie above 1 and above the noise floor, the median A/A ratio or its inverse, whichever
  is above 1.
- 6 processes x 4 pairs, or 10 x 3, and 100 different items (where one takes a millisecond or more) are the least for a
  claim. An objection (fidelity, a changed environment) or a method that is more than 10% faster on items it has seen
  ends in "no claim", however fast it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median, stdev
from typing import Any, Literal

from harness.common import statistics

Decision = Literal["faster", "slower", "no difference shown", "no claim", "exploratory"]
LEAST = ((6, 4), (10, 3))  # (processes, pairs) that suffice for a claim
LEAST_ITEMS = 100  # different items over a cell's processes, where an item takes LONG_NS or more
LONG_NS = 1e6
REMEMBERS = 1.10  # an item timed again may be so much faster than at first


@dataclass(slots=True)
class ProcessSample:
    """What one process measured, in nanoseconds.

    pairs: {"order": "AB" | "BA", "count": items, "items": their numbers or None where a pass has too many to keep,
    "baseline_ns", "method_ns": one time for each call, in order; None for a side that is not timed}.
    again: the same of the last pair's items, timed once more. hot: of every pair {"baseline_ns", "method_ns"}, the time
    of all calls in a loop with nothing between them; empty where nothing runs between calls anyway. fit: the number of
    the fit that was opened.
    """

    pairs: list[dict[str, Any]]
    again: dict[str, Any] | None = None
    hot: list[dict[str, float]] = field(default_factory=list)
    fit: int = 0

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> ProcessSample:
        """The sample in a stored process."""
        return cls(stored["pairs"], stored.get("again"), stored.get("hot") or [], stored.get("fit", 0))

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(slots=True)
class Summary:
    """The evidence of all processes and what it supports.

    speedup, interval, ratios: as in the module's docstring; None where one side alone was timed. Seconds of one pass,
    medians over processes: baseline_s, method_s; per item: baseline_item_s, method_item_s. method_std_s: deviation of
    the processes' seconds an item, None for a single process. items: different ones; timed: items that were timed.
    repeat: how much faster the method was on items that it had seen, beyond what the baseline was. hot, hot_interval:
    the speedup in a loop.
    """

    speedup: float | None
    ratios: list[float]
    interval: statistics.Interval | None
    baseline_s: float | None
    method_s: float
    baseline_item_s: float | None
    method_item_s: float
    method_std_s: float | None
    noise_floor: float | None
    repeat: float | None
    hot: float | None
    hot_interval: statistics.Interval | None
    items: int | None
    timed: int
    outliers: int
    decision: Decision | None
    reason: str


def decide(processes: Sequence[ProcessSample], *, exploratory: bool = False, objections: Sequence[str] = ()) -> Summary:
    """What the samples of all processes support. `exploratory` words the case of too few samples (scale mini).
    objections: reasons for no claim that the samples do not show (fidelity, validity, environment)."""
    paired = all(pair["baseline_ns"] is not None for process in processes for pair in process.pairs)
    ratios = [_total(p, "baseline") / _total(p, "method") for p in processes] if paired else []
    fits = [process.fit for process in processes]
    interval = statistics.interval_over_fits(ratios, fits) if ratios else None
    noise = [ratio for process in processes if (ratio := _again(process, "baseline")) is not None]
    central = median(noise) if noise else None
    floor = max(central, 1 / central) if central is not None else None
    repeats = [ratio for process in processes if (ratio := _remembered(process)) is not None]
    per_item = {side: [_total(p, side) / _items(p) for p in processes] for side in ("baseline", "method") if paired}
    per_item.setdefault("method", [_total(p, "method") / _items(p) for p in processes])
    hot = [_hot(process) for process in processes if process.hot]
    known = [pair["items"] for process in processes for pair in process.pairs]
    different = None if None in known else len({item for items in known for item in items})
    summary = Summary(
        speedup=median(ratios) if ratios else None,
        ratios=ratios,
        interval=interval,
        baseline_s=median(_total(p, "baseline") / len(p.pairs) for p in processes) / 1e9 if paired else None,
        method_s=median(_total(p, "method") / len(p.pairs) for p in processes) / 1e9,
        baseline_item_s=median(per_item["baseline"]) / 1e9 if paired else None,
        method_item_s=median(per_item["method"]) / 1e9,
        method_std_s=stdev(per_item["method"]) / 1e9 if len(processes) > 1 else None,
        noise_floor=floor,
        repeat=median(repeats) if repeats else None,
        hot=median(hot) if hot else None,
        hot_interval=statistics.interval_over_fits(hot, fits) if len(hot) == len(fits) else None,
        items=different,
        timed=sum(_items(p) for p in processes),
        outliers=_outliers(processes),
        decision=None,
        reason="one side alone was timed",
    )
    if paired:
        summary.decision, summary.reason = _decision(summary, processes, repeats, exploratory, objections)
    return summary


def _decision(
    summary: Summary, processes: Sequence[ProcessSample], repeats: Sequence[float], exploratory: bool,
    objections: Sequence[str],
) -> tuple[Decision, str]:  # fmt: skip
    interval, floor = summary.interval, summary.noise_floor
    fewest = min((len(process.pairs) for process in processes), default=0)
    assert summary.baseline_item_s is not None
    long = max(summary.baseline_item_s, summary.method_item_s) * 1e9 >= LONG_NS
    if objections:
        return "no claim", "; ".join(objections)
    if not any(len(processes) >= n and fewest >= m for n, m in LEAST):
        return "exploratory" if exploratory else "no claim", (
            f"{len(processes)} process(es) x {fewest} pairs are too few for a claim (6 x 4 or 10 x 3 are the least)"
        )
    if long and (summary.items is not None and summary.items < LEAST_ITEMS):
        return "no claim", f"{summary.items} different items are too few for a claim ({LEAST_ITEMS} are the least)"
    if _remembers(repeats):
        return "no claim", (
            f"the method is {summary.repeat:.3f} times as fast on items that it has seen as on new ones "
            f"(at most {REMEMBERS:.2f} is allowed): it may remember answers"
        )
    if interval is None:
        return "no claim", "no interval from these samples"
    if floor is None:
        return "no claim", "no noise floor was measured"
    low, high = interval
    if low > 1 and low > floor:
        return "faster", f"lower bound {low:.3f} above the noise floor {floor:.3f}"
    if high < 1 and high < 1 / floor:
        return "slower", f"upper bound {high:.3f} below the noise floor {1 / floor:.3f}"
    if low <= 1 <= high:
        return "no difference shown", "the interval holds 1"
    return "no difference shown", f"the interval reaches into the noise floor {floor:.3f}"


def _remembers(repeats: Sequence[float]) -> bool:
    """Whether the method is faster on items that it has seen by more than is allowed, and not by chance."""
    if not repeats:
        return False
    interval = statistics.interval_over_processes(repeats)
    return interval is not None and interval[0] > 1 and median(repeats) > REMEMBERS


def _total(process: ProcessSample, side: str) -> float:
    return float(sum(sum(pair[f"{side}_ns"]) for pair in process.pairs))


def _items(process: ProcessSample) -> int:
    return sum(int(pair["count"]) for pair in process.pairs)


def _again(process: ProcessSample, side: str) -> float | None:
    """First time over second time of one side on the items of the last pair."""
    times = (process.again or {}).get(f"{side}_ns")
    return sum(process.pairs[-1][f"{side}_ns"]) / sum(times) if times else None


def _remembered(process: ProcessSample) -> float | None:
    """How much faster the method is on items that it has seen, beyond what the baseline is on the same."""
    method, baseline = _again(process, "method"), _again(process, "baseline")
    return None if method is None or baseline is None else method / baseline


def _hot(process: ProcessSample) -> float:
    return sum(p["baseline_ns"] for p in process.hot) / sum(p["method_ns"] for p in process.hot)


def _outliers(processes: Sequence[ProcessSample]) -> int:
    """Passes far from the median of their side, per item; none is dropped."""
    count = 0
    for side in ("baseline", "method"):
        passes = [sum(p[f"{side}_ns"]) / p["count"] for q in processes for p in q.pairs if p[f"{side}_ns"] is not None]
        count += statistics.outliers(passes) if passes else 0
    return count
