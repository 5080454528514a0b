"""Paired timing on fresh items, and the decision that it supports.

A process draws its own items (`harness.measure.drawing`) and times them in pairs of passes (baseline, method),
alternating AB and BA; no item comes twice. At last it times both sides on the items of its last pair once more. The
baseline's two times on these items are the noise (A/A); the method's two times tell whether it remembers answers.
`decide` looks at all processes of a cell:

- a process's ratio is the sum of the baseline's times over the sum of the method's, on the same items;
- the speedup is the median of these ratios, its interval that of the median over processes
  (`statistics.interval_over_fits`), so that it covers machine, items and, where processes open other fits, fits;
- the interval's lower bound must lie above 1 and above the noise floor, the median A/A ratio or its inverse, whichever
  is above 1;
- 6 processes x 4 pairs, or 10 x 3, and 100 different items (where one takes a millisecond or more) are the least for a
  claim; an objection (fidelity, a changed environment) or a method that is more than 10% faster on items it has
  seen ends in "no claim" however fast it was.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from statistics import median, stdev
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from harness.measure import statistics
from harness.measure.phases import PhaseTimer
from harness.measure.quiet import Watch

if TYPE_CHECKING:
    from numpy.typing import NDArray

Decision = Literal["faster", "slower", "no difference shown", "no claim", "exploratory"]
LEAST = ((6, 4), (10, 3))  # (processes, pairs) that suffice for a claim
LEAST_ITEMS = 100  # different items over a cell's processes, where an item takes LONG_NS or more
LONG_NS = 1e6
REMEMBERS = 1.10  # an item timed again may be so much faster than at first
MOST_TIMES = 64  # times of one side that a row keeps for each pass; more are summed by stretches
WARM_NS = 1e8  # time of calls that a side is warmed up with


@dataclass(slots=True)
class ProcessSample:
    """What one process measured, in nanoseconds.

    pairs: {"order": "AB" | "BA", "count": items, "items": their numbers or None where a pass has more than
    `MOST_TIMES`, "baseline_ns", "method_ns": one time for each call, in order; None for a side that is not timed}.
    again: the same of the last pair's items, timed once more. hot: of every pair {"baseline_ns", "method_ns"}, the time
    of all calls in a loop with nothing between them; empty where nothing runs between calls anyway. fit: the number of
    the fit that was opened.
    """

    pairs: list[dict[str, Any]]
    again: dict[str, Any] | None = None
    hot: list[dict[str, float]] = field(default_factory=list)
    fit: int = 0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(slots=True)
class Summary:
    """The evidence of all processes and what may be said of it.

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


class Side:
    """One method as it is timed.

    inputs: item numbers -> what each call gets, prepared off the clock. ask: answers one input; the clock runs around
    it alone. between: what runs between two calls in use, off the clock. synchronise: waits for the device. timer: the
    phases that `ask` records; those of the pairs alone are kept, in `phases` (seconds of one pass).
    """

    def __init__(
        self, ask: Callable[[Any], Any], inputs: Callable[[Any], Sequence[Any]], *,
        between: Callable[[], object] | None = None, synchronise: Callable[[], None] | None = None,
        watch: Watch | None = None, timer: PhaseTimer | None = None,
    ) -> None:  # fmt: skip
        self.ask, self.inputs, self.between, self.synchronise = ask, inputs, between, synchronise
        self.watch, self.timer = watch, timer
        self.phases: dict[str, Any] = {}

    def run(self, items: Any) -> tuple[list[int], list[Any]]:
        """Nanoseconds and answer of each call of one pass, garbage collection off."""
        given = self.inputs(items)
        with _undisturbed(self.watch):
            return self._run(given)

    def _run(self, given: Sequence[Any]) -> tuple[list[int], list[Any]]:
        ask, between, synchronise = self.ask, self.between, self.synchronise
        times, answers = [], []
        for one in given:
            if between is not None:
                between()
            if synchronise is not None:
                synchronise()
            started = perf_counter_ns()
            answer = ask(one)
            if synchronise is not None:
                synchronise()
            times.append(perf_counter_ns() - started)
            answers.append(answer)
        return times, answers

    def loop(self, items: Any) -> int:
        """Nanoseconds of all calls of one pass with nothing between them."""
        given, ask = self.inputs(items), self.ask
        with _undisturbed(None):
            if self.synchronise is not None:
                self.synchronise()
            started = perf_counter_ns()
            for one in given:
                ask(one)
            if self.synchronise is not None:
                self.synchronise()
            return perf_counter_ns() - started

    def warm(self, items: Any) -> None:
        """Call a few times, off the record: the first calls pay for compilation, caches and lazy initialisation."""
        given = self.inputs(items)
        spent = 0
        for number, one in enumerate(given):
            if spent >= WARM_NS and number >= 2:
                return
            spent += sum(self._run([one])[0])


class _undisturbed:  # noqa: N801 - a context manager in the manner of `contextlib`
    """Garbage collection off and the machine watched."""

    def __init__(self, watch: Watch | None) -> None:
        self.watch = watch

    def __enter__(self) -> None:
        self.collecting = gc.isenabled()
        gc.disable()
        if self.watch is not None:
            self.watch.start()

    def __exit__(self, *_: object) -> None:
        if self.watch is not None:
            self.watch.stop()
        if self.collecting:
            gc.enable()


@dataclass(slots=True)
class Measured:
    """A process's sample, and each side's answers to the items of all its pairs, in order (`items`)."""

    sample: ProcessSample
    items: NDArray[np.int64]
    baseline: list[Any]
    method: list[Any]
    times: dict[str, NDArray[np.int64]]  # every single call of the pairs, by side


def measure(
    baseline: Side | None, method: Side, passes: Sequence[NDArray[np.int64]], *, swap: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Measured:  # fmt: skip
    """Time both sides in this process. passes: the first warms up, each other one is a pair. `swap` starts with BA
    (every other process does). Without a baseline the method alone is timed, and no speedup follows."""
    sides = {"baseline": baseline, "method": method} if baseline is not None else {"method": method}
    for side in sides.values():
        side.warm(passes[0])
        if side.timer is not None:
            side.timer.clear()
    sample = ProcessSample([])
    answers: dict[str, list[Any]] = {"baseline": [], "method": []}
    times: dict[str, list[int]] = {"baseline": [], "method": []}
    total = len(passes)
    for number, items in enumerate(passes[1:]):
        order = list(sides) if (number % 2 == 0) != swap else list(sides)[::-1]
        pair: dict[str, Any] = {
            "order": "".join("AB"[name == "method"] for name in order), "count": len(items),
            "items": items.tolist() if len(items) <= MOST_TIMES else None, "baseline_ns": None, "method_ns": None,
        }  # fmt: skip
        for name in order:
            taken, given = sides[name].run(items)
            pair[f"{name}_ns"] = summed(taken)
            answers[name] += given
            times[name] += taken
        sample.pairs.append(pair)
        progress(number + 1, total)
    for side in sides.values():
        if side.timer is not None:
            side.phases = side.timer.record(len(sample.pairs))
    if baseline is not None:
        last = passes[-1]
        order = ["baseline", "method"] if not swap else ["method", "baseline"]
        sample.again = {f"{name}_ns": summed(sides[name].run(last)[0]) for name in order}
        if method.between is not None:
            for number, items in enumerate(passes[1:]):
                order = list(sides) if (number % 2 == 0) != swap else list(sides)[::-1]
                sample.hot.append({f"{name}_ns": float(sides[name].loop(items)) for name in order})
    progress(total, total)
    return Measured(
        sample, np.concatenate(passes[1:]), answers["baseline"], answers["method"],
        {name: np.asarray(values, np.int64) for name, values in times.items() if values},
    )  # fmt: skip


def summed(times: Sequence[int], most: int = MOST_TIMES) -> list[int]:
    """The times of one pass as a row keeps them: each, or the sums of at most `most` equal stretches."""
    if len(times) <= most:
        return list(times)
    bounds = np.linspace(0, len(times), most + 1).astype(int).tolist()
    return [sum(times[begin:end]) for begin, end in pairwise(bounds)]


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
            f"the method is {summary.repeat:.2f} times as fast on items that it has seen as on new ones "
            f"(at most {REMEMBERS:g} is allowed): it may remember answers"
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


def of_row(processes: Sequence[Mapping[str, Any]]) -> list[ProcessSample]:
    """The samples of a stored row."""
    return [ProcessSample(p["pairs"], p.get("again"), p.get("hot") or [], p.get("fit", 0)) for p in processes]
