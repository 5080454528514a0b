"""What the samples of all processes of a cell support, by the rule of docs/measuring.md: "One estimator" says how
speedup and interval follow from them (`statistics.ratio_of_totals`), "What a claim needs" what ends in "no claim",
however fast the method was. The rule's bounds are the constants below."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from statistics import median, stdev
from typing import Any

import numpy as np

from harness.common import statistics

FASTER, SLOWER, UNDECIDED, NO_CLAIM, EXPLORATORY = (
    "faster", "slower", "no difference shown", "no claim", "exploratory",
)  # fmt: skip
SIDES = ("method", "baseline")
EQUAL = "equal within "  # and the share, such as 2%
LEAST = ((6, 4), (10, 3))  # (processes, pairs) that suffice for a claim
LEAST_ITEMS = 100  # different items over a cell's processes, where an item takes LONG_NS or more
LONG_NS = 1e6
REMEMBERS = 1.10  # an item timed again may be so much faster than at first
PREPARED = 1.5  # items of the data may be so much faster than varied ones, whose answers may take other work
SLOWED = 1.10  # the baseline next to the method may take so much longer than alone
SPREAD = 1.25  # between the first and the ninth decile of the passes' times of the same work
IDLE = 0.10  # of its time that a method's threads may work while it is not asked


def is_decided(decision: str | None) -> bool:
    """Whether the samples sufficed to decide: faster, slower, equal, or no difference shown."""
    return decision in (FASTER, SLOWER, UNDECIDED) or bool(decision and decision.startswith(EQUAL))


@dataclass(slots=True)
class ProcessSample:
    """What one process measured, in nanoseconds.

    pairs: {"order": "AB" | "BA", "count": items, "items": their numbers or None where a pass has too many to keep,
    "baseline_ns", "method_ns": one time for each call, in order; None for a side that is not timed}. These have the
    form {"baseline_ns", "method_ns"}, too: again, of the last pair's items, timed once more; varied, of the same items
    changed a little, so that no answer to them can have been prepared; hot, of every pair, the time of all calls in a
    loop with nothing between them (empty where nothing runs between calls anyway).

    alone: {"alone_ns", "beside_ns"}: the baseline's time of the warm-up's items before the process opened a method, and
    after. work: the number of equal pieces of work of the pairs (contexts, tokens of a text); None where items differ.
    idle_ns: CPU time of the method's threads while the baseline was asked. fit: the number of the fit that was opened.
    open_s: seconds of opening each side, by role.
    """

    pairs: list[dict[str, Any]]
    again: dict[str, Any] | None = None
    varied: dict[str, Any] | None = None
    hot: list[dict[str, float]] = field(default_factory=list)
    alone: dict[str, int] | None = None
    work: float | None = None
    idle_ns: float = 0.0
    fit: int = 0
    open_s: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> ProcessSample:
        """The sample in a stored process."""
        return cls(**{one.name: stored[one.name] for one in fields(cls) if stored.get(one.name) is not None})

    def total(self, side: str) -> float:
        """Nanoseconds of all pairs of a side, `baseline` or `method`."""
        return float(sum(sum(pair[f"{side}_ns"]) for pair in self.pairs))

    @property
    def items(self) -> int:
        """Items that were timed."""
        return sum(int(pair["count"]) for pair in self.pairs)


Number = tuple[float | None, statistics.Interval | None]


@dataclass(slots=True)
class Summary:
    """The evidence of all processes and what it supports.

    - numbers: metrics of a row that follow from its samples, with their intervals. Times are totals over processes, so
      that the speedup is the ratio of two of them; those of the baseline are None where one side alone was timed.
    - evidence: further metrics, which say how much was timed and how noisily.
    - ratios: the speedup of each process; empty where one side alone was timed.
    """

    numbers: dict[str, Number]
    evidence: dict[str, float | None]
    ratios: list[float]
    decision: str | None = None
    reason: str = "one side alone was timed"

    @property
    def speedup(self) -> float | None:
        return self.numbers["speedup"][0]

    @property
    def interval(self) -> statistics.Interval | None:
        return self.numbers["speedup"][1]


def decide(
    processes: Sequence[ProcessSample], *, exploratory: bool = False, objections: Sequence[str] = (),
    equal: float = 0.02,
) -> Summary:  # fmt: skip
    """What the samples of all processes support. `exploratory` words the case of too few samples (scale mini).
    objections: reasons for no claim that the samples do not show (fidelity, validity, environment). equal: a speedup
    that differs from 1 by less is called equal."""
    pairs = [pair for process in processes for pair in process.pairs]
    paired = all(pair["baseline_ns"] is not None for pair in pairs)
    fits, count = [process.fit for process in processes], [process.items for process in processes]
    method, baseline = ([p.total(side) for p in processes] if paired or side == "method" else [] for side in SIDES)
    hot = paired and all(process.hot for process in processes)
    loops = [[sum(one[f"{side}_ns"] for one in process.hot) for process in processes] for side in SIDES] if hot else []
    noise = _each(processes, lambda p: _over(p.pairs[-1], p.again, "baseline"))
    floor = max(median(noise), 1 / median(noise)) if noise else None
    known = [pair["items"] for pair in pairs]
    items = None if None in known else len({item for items in known for item in items})
    per_item = [ns / items / 1e9 for ns, items in zip(method, count, strict=True)]
    opened = _each(processes, lambda p: p.open_s.get("method"))
    none: Number = (None, None)
    summary = Summary(
        {
            "wall_clock_s": (sum(method) / len(pairs) / 1e9, None),
            "latency_std_s": (stdev(per_item) if len(processes) > 1 else None, None),
            "baseline_wall_clock_s": (sum(baseline) / len(pairs) / 1e9 if paired else None, None),
            "latency_s": statistics.ratio_of_totals([ns / 1e9 for ns in method], count, fits),
            "baseline_latency_s": statistics.ratio_of_totals([ns / 1e9 for ns in baseline], count) if paired else none,
            **{f"latency_p{percent}_s": (value, None) for percent, value in _percentiles(pairs).items()},
            "open_s": (median(opened) if opened else None, None),
            "speedup": statistics.ratio_of_totals(baseline, method, fits) if paired else none,
            "hot_loop_speedup": statistics.ratio_of_totals(loops[1], loops[0], fits) if hot else none,
        },
        {"timed_items": sum(count), "different_items": items, "noise_floor": floor, "outliers": _outliers(pairs)},
        ratios=[theirs / ours for theirs, ours in zip(baseline, method, strict=True)] if paired else [],
    )
    if paired:
        summary.decision, summary.reason = _decision(summary, processes, exploratory, objections, equal)
    return summary


def _decision(
    summary: Summary, processes: Sequence[ProcessSample], exploratory: bool, objections: Sequence[str], equal: float,
) -> tuple[str, str]:  # fmt: skip
    floor, items = summary.evidence["noise_floor"], summary.evidence["different_items"]
    longest = max(summary.numbers[name][0] or 0.0 for name in ("latency_s", "baseline_latency_s"))
    fewest = min((len(process.pairs) for process in processes), default=0)
    if objections:
        return NO_CLAIM, "; ".join(objections)
    if not any(len(processes) >= n and fewest >= m for n, m in LEAST):
        return EXPLORATORY if exploratory else NO_CLAIM, (
            f"{len(processes)} process(es) x {fewest} pairs are too few for a claim (6 x 4 or 10 x 3 are the least)"
        )
    if items is not None and items < LEAST_ITEMS and longest * 1e9 >= LONG_NS:
        return NO_CLAIM, f"{items} different items are too few for a claim ({LEAST_ITEMS} are the least)"
    found, spread = doubts(processes), baseline_spread(processes)
    if spread is not None and spread > SPREAD:
        found.append(
            f"the baseline's time for the same work differs by {spread:.2f} between passes (first and ninth decile; at "
            f"most {SPREAD} is allowed): the machine may favour one side"
        )
    if found:
        return NO_CLAIM, "; ".join(found)
    if summary.interval is None:
        return NO_CLAIM, "no interval from these samples"
    if floor is None:
        return NO_CLAIM, "no noise floor was measured"
    low, high = summary.interval
    if 1 - equal <= low and high <= 1 + equal:
        return f"{EQUAL}{100 * equal:g}%", "the whole interval is so near to 1"
    if low > 1 and low > floor:
        return FASTER, f"lower bound {low:.3f} above the noise floor {floor:.3f}"
    if high < 1 and high < 1 / floor:
        return SLOWER, f"upper bound {high:.3f} below the noise floor {1 / floor:.3f}"
    if low <= 1 <= high:
        return UNDECIDED, "the interval holds 1"
    return UNDECIDED, f"the interval reaches into the noise floor {floor:.3f}"


def doubts(processes: Sequence[ProcessSample]) -> list[str]:
    """What the samples of a method show against it, whatever it is compared with."""
    found = []
    for values, most, words in (
        (_each(processes, lambda p: _beyond(p.pairs[-1], p.again)), REMEMBERS,
         "the method is {:.3f} times as fast on items that it has seen as on new ones (at most {:.2f} is allowed): it "
         "may remember answers"),
        (_each(processes, lambda p: _beyond(p.varied, p.pairs[-1])), PREPARED,
         "the method is {:.3f} times as fast on the data's items as on items changed a little (at most {:.2f} is "
         "allowed): it may have prepared answers"),
        (_each(processes, lambda p: p.alone["beside_ns"] / p.alone["alone_ns"] if p.alone else None), SLOWED,
         "the baseline takes {:.3f} times as long next to the method as alone (at most {:.2f} is allowed): the method "
         "may slow it"),
    ):  # fmt: skip
        interval = statistics.order_statistic_interval(values) if values else None
        if interval is not None and interval[0] > most:
            found.append(words.format(median(values), most))
    if (share := sum(p.idle_ns for p in processes) / sum(p.total("method") for p in processes)) > IDLE:
        found.append(
            f"threads of the method work {share:.0%} of its time while the baseline is asked (at most {IDLE:.0%} is "
            "allowed)"
        )
    return found


def baseline_spread(processes: Sequence[ProcessSample]) -> float | None:
    """The ninth over the first decile of the baseline's time for the same work, over all passes; None where work cannot
    be compared."""
    if any(process.work is None for process in processes) or len(processes) < statistics.LEAST_PROCESSES:
        return None
    rates = [sum(pair["baseline_ns"]) / pair["count"] for process in processes for pair in process.pairs]
    low, high = np.quantile(rates, [0.1, 0.9])
    return float(high / low)


def _each(processes: Sequence[ProcessSample], value: Callable[[ProcessSample], float | None]) -> list[float]:
    """A value of every process that has it."""
    return [found for process in processes if (found := value(process)) is not None]


def _over(first: Mapping[str, Any] | None, second: Mapping[str, Any] | None, side: str) -> float | None:
    """A side's time in one pass over its time in another; None where it was not timed in both."""
    times, others = ((one or {}).get(f"{side}_ns") for one in (first, second))
    return sum(times) / sum(others) if times and others else None


def _beyond(first: Mapping[str, Any] | None, second: Mapping[str, Any] | None) -> float | None:
    """How much faster the method is in the second pass than in the first, beyond what the baseline is."""
    method, baseline = (_over(first, second, side) for side in SIDES)
    return None if method is None or baseline is None else method / baseline


PERCENTILES = {50: 20, 90: 60, 99: 662}  # percent -> fewest items: at 662 two items or more lie above in 99% of draws


def _percentiles(pairs: Sequence[Mapping[str, Any]]) -> dict[int, float]:
    """Percentiles of the method's seconds of an item over all timed items; empty where calls hold several items."""
    if any(len(pair["method_ns"]) != pair["count"] for pair in pairs):
        return {}
    times = [ns / 1e9 for pair in pairs for ns in pair["method_ns"]]
    return {q: float(np.percentile(times, q)) for q, least in PERCENTILES.items() if len(times) >= least}


def _outliers(pairs: Sequence[Mapping[str, Any]]) -> int:
    """Passes far from the median of their side, per item; none is dropped."""
    per_item = ([sum(p[f"{side}_ns"]) / p["count"] for p in pairs if p[f"{side}_ns"] is not None] for side in SIDES)
    return sum(statistics.outliers(passes) for passes in per_item if passes)
