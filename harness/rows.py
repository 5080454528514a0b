"""A row: what was measured of one cell at one time, and what follows from it.

A row on disk holds labels, parameters, the answers' metrics, timing samples, hashes and the environment. Speedup,
interval, decision and every other number that follows from the samples is a property: it cannot be edited, and rows of
any age are judged by today's rule.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache, cached_property
from typing import Any, Literal

from harness.common.statistics import Interval, ratio_of_totals
from harness.contracts import ratios
from harness.contracts.metrics import Metric
from harness.decision import ProcessSample, Summary, decide
from harness.machine import machine_id

SCHEMA = 4
Status = Literal["ok", "skipped", "failed", "timeout", "killed"]
Baseline = dict[str, Any]  # {"method": name, "params": {...}}

OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "below": operator.lt, "above": operator.gt, "at most": operator.le, "at least": operator.ge,
}  # fmt: skip

OWN = (
    # what a timing sample says
    Metric("speedup", unit="×", better="higher", kind="speed", relative=True),
    Metric("hot_loop_speedup", "hot loop", "×", "higher", "speed", relative=True),
    Metric("wall_clock_s", "time of a pass", "s", "lower", "time"),
    Metric("baseline_wall_clock_s", "baseline's time of a pass", "s", "lower", "time"),
    Metric("latency_s", "time per item", "s", "lower", "time"),
    Metric("latency_std_s", "deviation of the time per item", "s", "lower", "time"),
    Metric("baseline_latency_s", "baseline's time per item", "s", "lower", "time"),
    Metric("latency_p*_s", "percentile * of the time per item", "s", "lower", "time"),
    Metric("open_s", "opening", "s", "lower", "time"),
    Metric("baseline_retrieval_share", kind="counter"),
    Metric("tokens_per_second", better="higher", kind="time"),
    Metric("baseline_tokens_per_second", "baseline's tokens per second", better="higher", kind="time"),
    Metric("draft_ms", "drafting for each iteration", "ms", "lower", "time"),
    Metric("verify_ms", "verifying for each iteration", "ms", "lower", "time"),
    # how much was timed
    Metric("timed_items", kind="counter"),
    Metric("different_items", kind="counter"),
    Metric("noise_floor", "baseline against itself", "×", kind="counter"),
    Metric("outliers", "passes far from the median", kind="counter"),
    # what fitting and memory cost
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
    # what answers and methods count, as the contracts name it (`harness.measure.drivers`)
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
    Metric("index_bytes", "index", "bytes", "lower", "memory"),
    # what an item reads, by `methods.bandwidth`
    Metric("bytes_read", "bytes read an item", better="lower", kind="counter"),
    Metric("baseline_bytes_read", "bytes that the baseline reads an item", kind="counter"),
    Metric("bandwidth_share", "share of the bandwidth", kind="counter"),
    Metric("baseline_bandwidth_share", "baseline's share of the bandwidth", kind="counter"),
)
"""The metrics that any row may have. They mean the same in every row."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One cell's result. Fields that do not apply are None or empty. Numbers that are not finite are None."""

    recipe: str
    scale: str
    row: str  # labels of the published table where there is one
    column: str = ""
    published: Sequence[str] | None = None  # row and column of the published cell next to it
    method: str  # or the name of the analysis
    task: str
    params: Mapping[str, dict[str, Any]] = field(default_factory=lambda: {"method": {}, "task": {}})
    seed: int | None = None
    device: str | None = None
    status: Status = "ok"
    error: Mapping[str, str] | None = None  # {"message": one line, "log": the end of the process's log}
    metrics: Mapping[str, float | None] = field(default_factory=dict)  # of the answers and the fit
    intervals: Mapping[str, Sequence[float]] = field(default_factory=dict)  # metric -> [low, high], 95%
    counters: Mapping[str, float | None] = field(default_factory=dict)
    described: Mapping[str, dict[str, Any]] = field(default_factory=dict)  # metric or counter -> label, unit, ...
    series: Mapping[str, Sequence[float | None]] = field(default_factory=dict)  # figures of each item
    examples: Sequence[dict[str, str]] = field(default_factory=list)  # worked examples: label -> text
    processes: Sequence[dict[str, Any]] = field(
        default_factory=list
    )  # samples: `ProcessSample`, phases, memory, ... of each process
    ratios: Mapping[str, dict[str, Any]] = field(default_factory=dict)  # metric -> `harness.contracts.ratios.Ratio`
    objections: Sequence[str] = field(default_factory=list)  # why the samples support no claim, whatever they show
    disturbed: str = ""  # what else the machine did meanwhile
    timing_counters: Mapping[str, float] = field(default_factory=dict)
    fitted_once: bool = False  # the fit is random and was done once
    equal: float = 0.02  # a speedup that differs from 1 by less is called equal
    speed_baseline: Baseline | None = None
    fidelity_baseline: Baseline | None = None
    fidelity: Mapping[str, Any] | None = None  # what is demanded: {"metric", "is", "bound"}
    facts: Mapping[str, Any] = field(default_factory=dict)  # sizes and names that the task reports
    hashes: Mapping[str, str] = field(default_factory=dict)  # data, model, ...; "key" recognises a finished cell
    code: Mapping[str, Any] = field(default_factory=dict)  # {"version", "revision", "dirty"}
    environment: Mapping[str, Any] = field(default_factory=dict)  # {"before", "after"}: `measure.environment.capture`
    started: str | None = None  # ISO 8601, UTC
    seconds: float | None = None

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Row:
        """A row from its JSON. Raises `TypeError` or another lookup error for what is no row."""
        row = cls(**{name: value for name, value in stored.items() if name != "schema"})
        _ = row.numbers  # what cannot be computed from its samples is refused now
        return row

    def as_json(self) -> dict[str, Any]:
        """The row as it is stored. NaN and infinities are None, which strict JSON can say."""
        return {"schema": SCHEMA} | {one.name: _plain(getattr(self, one.name)) for one in fields(self)}

    # ------------------------------------------------------------ what follows

    @property
    def cell(self) -> str:
        """The cell's name, unique in a recipe."""
        return f"{self.row} / {self.column}" if self.column else self.row

    @cached_property
    def summary(self) -> Summary | None:
        """What the samples support; None where nothing was timed."""
        if not self.processes:
            return None
        samples = [ProcessSample.of(process) for process in self.processes]
        return decide(samples, exploratory=self.scale == "mini", objections=self.objections, equal=self.equal)

    @property
    def speedup(self) -> float | None:
        return self.value("speedup")

    @property
    def decision(self) -> str | None:
        return self.summary.decision if self.summary else None

    @property
    def reason(self) -> str:
        """Why the decision is what it is."""
        return self.summary.reason if self.summary else "not timed"

    @property
    def shape(self) -> tuple[int, int]:
        """Timing processes, and the fewest pairs of one."""
        return len(self.processes), min((len(process["pairs"]) for process in self.processes), default=0)

    @property
    def is_faithful(self) -> bool | None:
        """Whether the answers are as close to the baseline's as demanded; None where nothing is demanded."""
        if self.fidelity is None:
            return None
        value = self.value(self.fidelity["metric"])
        return value is not None and OPERATORS[self.fidelity["is"]](value, self.fidelity["bound"])

    @property
    def machine(self) -> str:
        """The machine it was measured on (`machine_id`); "" when unknown."""
        before = self.environment.get("before")
        return machine_id(before) if before else ""

    @cached_property
    def numbers(self) -> dict[str, tuple[float, Interval | None]]:
        """Every finite number with its interval: metrics, then what follows from the samples, then counters."""
        found: dict[str, tuple[float | None, Any]] = {n: (v, self.intervals.get(n)) for n, v in self.metrics.items()}
        found |= self._memory() | self._timed()
        found |= {name: (value, None) for name, value in self.counters.items() if found.get(name, (None,))[0] is None}
        found |= self._shares({name: value for name, (value, _) in found.items()})
        return {
            name: (value, (interval[0], interval[1]) if interval and None not in interval else None)
            for name, (value, interval) in found.items()
            if value is not None and math.isfinite(value)
        }

    def following(self) -> dict[str, Any]:
        """What follows from the row, as JSON for programs that read no samples: every number as [value, low, high], the
        decision and its reason."""
        numbers = {name: [value, *(interval or (None, None))] for name, (value, interval) in self.numbers.items()}
        return {"cell": self.cell, "numbers": numbers, "decision": self.decision, "reason": self.reason}

    def value(self, name: str) -> float | None:
        """A metric, else a counter; None when the row has neither or it is not finite."""
        return self.numbers[name][0] if name in self.numbers else None

    def interval_of(self, name: str) -> Interval | None:
        """The 95% interval of a metric, or None."""
        return self.numbers[name][1] if name in self.numbers else None

    def metric(self, name: str) -> Metric:
        """What a number of this row is: the harness's own metric, else what the row declares, else a plain number."""
        if (own := _own(name)) is not None:
            return own
        for declared, about in self.described.items():
            if (found := Metric(declared, **about).called(name)) is not None:
                return found
        counted = name in self.counters and name not in self.metrics
        return Metric(name, label=name.replace("_", " "), kind="counter" if counted else "quality")

    def _memory(self) -> dict[str, tuple[float | None, None]]:
        """Peak memory of both sides; one process of a run measures it."""
        found = [process["memory_mib"] for process in self.processes if process.get("memory_mib")][-1:]
        names = {"memory_mib": "method", "baseline_memory_mib": "speed_baseline"}
        return {name: (one.get(role), None) for one in found for name, role in names.items()}

    def _timed(self) -> dict[str, tuple[float | None, Interval | None]]:
        """Seconds of a pass and of an item, the speedup, ratios of times, and how much was timed. A speedup over a
        baseline follows from samples or is none."""
        if (summary := self.summary) is None:
            return {"speedup": (None, None)} if self.speed_baseline else {}
        return {
            **summary.numbers,
            **{name: self._over_processes(ratio) for name, ratio in self.ratios.items()},
            **{name: (value, None) for name, value in summary.evidence.items()},
        }

    def _shares(self, numbers: Mapping[str, float | None]) -> dict[str, tuple[float | None, None]]:
        """Each side's share of the bandwidth at which the processor copies; none on a GPU, whose memory is another."""
        cpu = (self.environment.get("before") or {}).get("cpu") or {}
        copies = None if (self.device or "").startswith("cuda") else cpu.get("copy_gb_s")

        def of(side: str) -> float | None:
            read, seconds = (numbers.get(f"{side}{name}") for name in ("bytes_read", "latency_s"))
            return read / seconds / copies / 1e9 if read and seconds and copies else None

        return {f"{side}bandwidth_share": (of(side), None) for side in ("", "baseline_")}

    def _over_processes(self, ratio: Mapping[str, Any]) -> tuple[float | None, Interval | None]:
        """A ratio of totals over processes, and its interval; None where a process has no value."""
        found = [ratios.parts(ratio, process) for process in self.processes]
        known = [both for both in found if both is not None]
        fits = [process.get("fit", 0) for process in self.processes]
        if len(known) < len(found):
            return None, None
        of, per = zip(*known, strict=True)
        return ratio_of_totals(of, per, fits)


@cache
def _own(name: str) -> Metric | None:
    return next((found for metric in OWN if (found := metric.called(name)) is not None), None)


def metric_among(rows: Iterable[Row], name: str) -> Metric:
    """What a number of several rows is, as the first row says that has it."""
    having = next((row for row in rows if name in row.numbers), None)
    return having.metric(name) if having else _own(name) or Metric(name, label=name.replace("_", " "))


def _plain(value: Any) -> Any:
    """A JSON value: NaN and infinities become None, tuples lists, NumPy's scalars numbers."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(v) for v in value]
    if not isinstance(value, str) and hasattr(value, "item"):
        return _plain(value.item())
    return value
