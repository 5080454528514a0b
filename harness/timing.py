"""Paired, interleaved timing and the decision it supports.

One process times pairs (baseline, method) on the same items, alternating AB and BA, and pairs (baseline, baseline) for
the noise floor. `decide` looks at all processes of a cell and says "faster" only when the evidence is complete:

- headline: ratio of medians over all samples, with the MAD of each side;
- one median pair ratio a process, then the interval over processes (`statistics.interval_over_processes`);
- the interval's lower bound must lie above 1 and above the noise floor, which is the far end of the same interval of
  the baseline's ratios against itself;
- 6 processes x 4 pairs, or 10 x 3, are the least for a claim; a failed fidelity check or a changed environment ends in
  "no claim" however fast the method was.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median, stdev
from time import perf_counter_ns
from typing import Any, Literal

from harness import statistics

Decision = Literal["faster", "slower", "no difference shown", "no claim", "exploratory"]
LEAST = ((6, 4), (10, 3))  # (processes, pairs) that suffice for a claim


@dataclass(slots=True)
class ProcessSample:
    """What one process measured, in nanoseconds a call.

    pairs: {"order": "AB" | "BA", "baseline_ns", "method_ns"}; noise: [first, second] of the baseline against itself;
    loops: calls per sample of each side.
    """

    pairs: list[dict[str, Any]]
    noise: list[list[float]]
    loops: dict[str, int]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(slots=True)
class Summary:
    """The evidence of all processes and what may be said of it. Times in seconds. ratios: of each process;
    method_std_s: deviation of the processes' median times, None for a single process."""

    speedup: float
    ratios: list[float]
    interval: statistics.Interval | None
    baseline_s: float
    method_s: float
    method_std_s: float | None
    spread_baseline: float
    spread_method: float
    noise_floor: float | None
    outliers: int
    decision: Decision
    reason: str


def sample(call: Callable[[], object], loops: int, synchronise: Callable[[], None] | None) -> float:
    """Nanoseconds a call, over `loops` calls, the device idle before and after, garbage collection off."""
    if synchronise is not None:
        synchronise()
    collecting = gc.isenabled()
    gc.disable()
    try:
        started = perf_counter_ns()
        for _ in range(loops):
            call()
        if synchronise is not None:
            synchronise()
        return (perf_counter_ns() - started) / loops
    finally:
        if collecting:
            gc.enable()


def calibrate(call: Callable[[], object], minimum_ns: float, synchronise: Callable[[], None] | None) -> int:
    """Calls per sample so that a sample lasts at least `minimum_ns`, judged by a second call: the first pays for
    compilation, caches and lazy initialisation."""
    sample(call, 1, synchronise)
    once = sample(call, 1, synchronise)
    return max(1, -(-int(minimum_ns) // max(1, int(once))))


def measure(
    baseline: Callable[[], object],
    method: Callable[[], object],
    *,
    pairs: int,
    noise_pairs: int,
    minimum_ms: float = 100.0,
    swap: bool = False,
    synchronise: Callable[[], None] | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> ProcessSample:
    """Time both sides in this process. `swap` starts with BA (every other process does)."""
    minimum_ns = minimum_ms * 1e6
    loops_baseline = calibrate(baseline, minimum_ns, synchronise)
    loops_method = calibrate(method, minimum_ns, synchronise)
    taken: list[dict[str, Any]] = []
    noise: list[list[float]] = []
    total = pairs + noise_pairs
    for number in range(pairs):
        if (number % 2 == 0) != swap:
            a = sample(baseline, loops_baseline, synchronise)
            b = sample(method, loops_method, synchronise)
            order = "AB"
        else:
            b = sample(method, loops_method, synchronise)
            a = sample(baseline, loops_baseline, synchronise)
            order = "BA"
        taken.append({"order": order, "baseline_ns": a, "method_ns": b})
        progress(number + 1, total)
    for number in range(noise_pairs):
        noise.append([sample(baseline, loops_baseline, synchronise), sample(baseline, loops_baseline, synchronise)])
        progress(pairs + number + 1, total)
    return ProcessSample(taken, noise, {"baseline": loops_baseline, "method": loops_method})


def decide(
    processes: Sequence[ProcessSample],
    *,
    exploratory: bool = False,
    fidelity_failure: str = "",
    environment_changes: Sequence[str] = (),
) -> Summary:
    """What the samples of all processes support. `exploratory` words the case of too few samples (scale mini)."""
    baseline = [p["baseline_ns"] for process in processes for p in process.pairs]
    method = [p["method_ns"] for process in processes for p in process.pairs]
    ratios = [median(p["baseline_ns"] / p["method_ns"] for p in process.pairs) for process in processes]
    runs = [median(p["method_ns"] for p in process.pairs) for process in processes]
    interval = statistics.interval_over_processes(ratios)
    noise = statistics.interval_over_processes(
        [median(first / second for first, second in process.noise) for process in processes if process.noise]
    )
    floor = max(noise[1], 1 / noise[0]) if noise else None
    fewest = min((len(process.pairs) for process in processes), default=0)

    decision: Decision
    if not any(len(processes) >= n and fewest >= m for n, m in LEAST):
        decision = "exploratory" if exploratory else "no claim"
        reason = (
            f"{len(processes)} process(es) x {fewest} pairs are too few for a claim (6 x 4 or 10 x 3 are the least)"
        )
    elif fidelity_failure:
        decision, reason = "no claim", fidelity_failure
    elif environment_changes:
        decision, reason = "no claim", f"the environment changed during the run: {'; '.join(environment_changes)}"
    elif interval is None or floor is None:
        decision, reason = "no claim", "no noise floor was measured" if interval else "no interval from these samples"
    elif interval[0] > 1 and interval[0] > floor:
        decision, reason = "faster", f"lower bound {interval[0]:.3f} above the noise floor {floor:.3f}"
    elif interval[1] < 1 and interval[1] < 1 / floor:
        decision, reason = "slower", f"upper bound {interval[1]:.3f} below the noise floor {1 / floor:.3f}"
    elif interval[0] <= 1 <= interval[1]:
        decision, reason = "no difference shown", "the interval holds 1"
    else:
        decision, reason = "no difference shown", f"the interval reaches into the noise floor {floor:.3f}"
    return Summary(
        speedup=median(baseline) / median(method),
        ratios=ratios,
        interval=interval,
        baseline_s=median(baseline) / 1e9,
        method_s=median(method) / 1e9,
        method_std_s=stdev(runs) / 1e9 if len(runs) > 1 else None,
        spread_baseline=statistics.mad(baseline) / 1e9,
        spread_method=statistics.mad(method) / 1e9,
        noise_floor=floor,
        outliers=statistics.outliers(baseline) + statistics.outliers(method),
        decision=decision,
        reason=reason,
    )
