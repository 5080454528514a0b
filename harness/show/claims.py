"""A paper's claims and the bench's own targets judged by rows: holds, does not hold, or cannot be told from the rows.

Fails closed: a claim holds only when finished rows of one machine and scale show it, with the whole interval of each
metric (a counter is exact and needs none; a claim on the value alone or on the upper end says so), and for speed only
with a decision of `harness.decision` that allows it. Whatever is missing, unfinished, not finite or exploratory
leads to another verdict, with the command that would settle it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from harness.common.errors import RequestError
from harness.contracts.metrics import Metric
from harness.contracts.tasks import SCALES, Scale
from harness.decision import FASTER, SLOWER, is_decided
from harness.groups import paired
from harness.plan.matching import describe, differences, find
from harness.plan.schema import CellOf, Claim, Comparison
from harness.rows import OPERATORS, Row
from harness.show.formats import number, with_interval
from harness.show.interpolation import point
from harness.show.stored import Stored

Outcome = Literal["holds", "does not hold", "no difference shown", "not settled", "not tested"]
Interval = tuple[float, float]
COLOURS: dict[Outcome, str] = {
    "holds": "green", "does not hold": "red", "no difference shown": "yellow", "not settled": "yellow",
    "not tested": "bright_black",
}  # fmt: skip
SHADES: dict[Any, str] = {  # of all words in a table that say how something ended
    **COLOURS, "faster": "green", "slower": "red", "FAILED": "red", "TIMEOUT": "red", "KILLED": "red",
    "no claim": "yellow", "exploratory": "yellow", "not run": "yellow",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judgement of one claim. `detail` gives the numbers or the reason, `command` what would settle it."""

    claim: Claim
    scale: Scale
    outcome: Outcome
    detail: str
    command: str | None = None

    @property
    def holds(self) -> bool:
        return self.outcome == "holds"

    @property
    def is_here(self) -> bool:
        """Whether the claim stands at this scale at all."""
        return self.scale in self.claim.scales

    @property
    def sentence(self) -> str:
        """Claim, source and reason in one line."""
        return f"{self.claim.text} ({self.claim.source}): {self.detail}"


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What became of the paper's claims and, apart from them, of the bench's own targets."""

    claims: list[Verdict] = field(default_factory=list)
    targets: list[Verdict] = field(default_factory=list)

    @property
    def met(self) -> bool:
        """Whether all of the paper's claims that stand at this scale hold."""
        return all(verdict.holds for verdict in self.claims if verdict.is_here)


def told(group: Sequence[Verdict]) -> tuple[list[Verdict], str]:
    """What a reader is told of claims or targets: the verdicts on those that stand at this scale, and in one sentence
    how many stand at others alone (empty where none does)."""
    here = [verdict for verdict in group if verdict.is_here]
    others = {scale for verdict in group if not verdict.is_here for scale in verdict.claim.scales}
    if not others:
        return here, ""
    scales = ", ".join(scale for scale in SCALES if scale in others)
    count = len(group) - len(here)
    return here, f"{count} {'more ' * bool(here)}{'stand' if count > 1 else 'stands'} at other scales only ({scales})."


def counted(group: Sequence[Verdict]) -> dict[Outcome, int]:
    """How many of the verdicts on what stands at this scale have each outcome."""
    counts = Counter(verdict.outcome for verdict in group if verdict.is_here)
    return {outcome: counts[outcome] for outcome in COLOURS if counts[outcome]}


def verdicts(one: Stored) -> Verdicts:
    """One verdict per claim and target of a recipe at one scale, in the recipe's order, on the rows that lead."""
    claims, targets = (
        [_Judge(one, claim).verdict() for claim in conditions] for conditions in (one.recipe.claims, one.recipe.targets)
    )
    return Verdicts(claims, targets)


class _UndecidedError(Exception):
    """Why a claim cannot be judged from these rows."""

    def __init__(self, outcome: Outcome, detail: str, command: str | None) -> None:
        self.outcome: Outcome = outcome
        self.detail = detail
        self.command = command


class _Judge:
    """Judges one claim."""

    def __init__(self, one: Stored, claim: Claim) -> None:
        self.recipe, self.scale, self.cells = one.recipe, one.scale, one.cells
        self.claim = claim
        self.rows = {row.cell: row for row in one.rows}
        self.metric = Metric(claim.metric)

    def verdict(self) -> Verdict:
        try:
            outcome, detail = self._judge()
        except _UndecidedError as reason:
            return Verdict(self.claim, self.scale, reason.outcome, reason.detail, reason.command)
        return Verdict(self.claim, self.scale, outcome, detail)

    def _judge(self) -> tuple[Outcome, str]:
        claim = self.claim
        if self.scale not in claim.scales:
            raise _UndecidedError(
                "not tested", f"stands at scale {' and '.join(claim.scales)} only", self._command_at(claim.scales)
            )
        row = self._row(claim.of)
        self.metric = row.metric(claim.metric)
        other = self._row(claim.than) if isinstance(claim.than, CellOf) else None
        if other is not None and (together := self._timed_together(row, other)) is not None:
            return together
        value = self._value(row)
        for each in (row, other):
            if each is not None and self._is_timed(each):
                self._times_may_be_judged(each)
        if other is not None:
            self._rows_may_be_compared(row, other)
        bound = self._value(other) if other is not None else float(claim.than)  # type: ignore[arg-type]
        shown = f"{self.metric.axis} {with_interval(value, row.interval_of(claim.metric))}"
        shown += f" ({row.cell})" if claim.of.at else ""
        detail = f"{shown} {self._against(other, bound)}"
        if (difference_of := self._difference(row, other)) is not None:
            difference, interval = difference_of
            detail = f"{detail}; difference {with_interval(difference, interval)}"
            return _compare(interval, claim.is_, (0.0, 0.0)), detail
        left = self._interval(row, value)
        right = self._interval(other, bound) if other is not None else (bound, bound)
        scaled = sorted((right[0] * claim.factor, right[1] * claim.factor))
        outcome = _compare(left, claim.is_, (scaled[0], scaled[1]))
        equal = self._equal(row)
        if outcome == "holds" and equal is not None and other is None:
            outcome = _allowed(self._direction(row, left), claim.is_, scaled[0], equal)
        return outcome, detail

    def _timed_together(self, row: Row, other: Row) -> tuple[Outcome, str] | None:
        """Two speedups on the same items are compared by the ratio of the methods' own times in the processes that they
        share; None for other metrics and items. Raises `_UndecidedError` without shared processes."""
        if self.claim.metric != "speedup" or (row.task, row.params["task"]) != (other.task, other.params["task"]):
            return None
        self._rows_may_be_compared(row, other)
        if (found := paired(row, other)) is None:
            message = f"{row.cell} and {other.cell} were not timed in the same processes"
            raise _UndecidedError("not settled", message, f"{self._command_at([self.scale])} --fresh")
        if not is_decided(found.decision) or found.interval is None:
            raise _UndecidedError("not settled", f"{found.decision}: {found.reason}", self._larger_sample())
        ratio, interval = found.speedup, found.interval
        detail = f"{with_interval(ratio, interval)} times as fast as {other.cell}, in the same processes"
        detail += f" (at {number(self.claim.factor)} × the claim begins)" * (self.claim.factor != 1)
        outcome = _compare(interval, self.claim.is_, (self.claim.factor, self.claim.factor))
        if outcome == "holds":
            outcome = _allowed(found.decision, self.claim.is_, self.claim.factor, 1.0)
        return outcome, detail

    def _is_timed(self, row: Row) -> bool:
        """Whether the metric follows from timing samples, or would if this row had any."""
        analyses = {cell.name for cell in self.cells if cell.kind == "analysis" and cell.timed}
        return self.metric.kind == "speed" or self.claim.metric in row.ratios or row.cell in analyses

    def _equal(self, row: Row) -> float | None:
        """The metric where both sides take equally long; None for one that does not compare two times."""
        if self.claim.metric in row.ratios:
            equal: float | None = row.ratios[self.claim.metric].get("equal")
            return equal
        return self.metric.equal if self.metric.kind == "speed" else None

    def _direction(self, row: Row, interval: Interval) -> str | None:
        """The timing's decision. It is about the clock of `speedup`; a loop of calls is judged by its own interval and
        the noise floor."""
        if self.claim.metric != "hot_loop_speedup":
            return row.decision
        floor = row.value("noise_floor") or math.inf
        return FASTER if interval[0] > max(floor, 1) else SLOWER if interval[1] < min(1 / floor, 1) else None

    def _row(self, wanted: CellOf) -> Row:
        """The finished row of the cell that ran this, or the point of the curve that is asked for."""
        try:
            names = [cell.name for cell in find(wanted, self.cells)]
        except RequestError as error:
            raise _UndecidedError("not tested", str(error), None) from None
        rows = [self._finished(name, wanted) for name in names]
        for metric, value in wanted.at.items():
            try:
                return point(rows, metric, value)
            except LookupError as error:
                raise _UndecidedError("not tested", str(error.args[0]), None) from None
        return rows[0]

    def _finished(self, name: str, wanted: CellOf) -> Row:
        """The finished row of a cell. Raises `_UndecidedError` without one, or with one that ran something else."""
        again = self._command_at([self.scale])
        row = self.rows.get(name)
        if row is None:
            raise _UndecidedError("not tested", f"no row {name} at this scale", again)
        if other := differences(wanted, row):
            message = f"{name} was measured as a cell {' and '.join(other)} instead of {describe(wanted)}"
            raise _UndecidedError("not tested", message, again)
        if row.status != "ok":
            message = f"{name}: {row.status} {(row.error or {}).get('message', '')}".rstrip()
            raise _UndecidedError("not tested", message, again)
        return row

    def _value(self, row: Row) -> float:
        value = row.value(self.claim.metric)
        if value is None:
            raise _UndecidedError("not tested", f"{row.cell} has no finite {self.claim.metric}", None)
        return value

    def _interval(self, row: Row, value: float) -> Interval:
        """The metric's interval; the value alone where it is a counter, which is exact and needs none."""
        interval = row.interval_of(self.claim.metric)
        if interval is None:
            name, timed = self.claim.metric, self._is_timed(row) or self.metric.kind == "time"
            if name not in row.metrics and not timed:
                return value, value
            message = f"{name} of {row.cell} was stored without an interval"
            raise _UndecidedError("not settled", message, None if timed else self._larger_set())
        low, high = interval
        if not (math.isfinite(low) and math.isfinite(high) and low <= high):
            message = f"the interval of {self.claim.metric} of {row.cell} is broken"
            raise _UndecidedError("not settled", message, None)
        return low, high

    def _times_may_be_judged(self, row: Row) -> None:
        if not is_decided(row.decision):
            message = f"{row.decision or 'no claim'}, {row.cell}: {row.reason}"
            raise _UndecidedError("not settled", message, self._larger_sample())

    def _rows_may_be_compared(self, row: Row, other: Row) -> None:
        if self.metric.kind == "speed" and row.speed_baseline != other.speed_baseline:
            raise _UndecidedError("not tested", "the two speedups are against different baselines", None)
        stale = [n for n in ("data", "model") if row.hashes.get(n) != other.hashes.get(n)]
        if stale and (row.task, row.params["task"]) == (other.task, other.params["task"]):
            message = f"{row.cell} and {other.cell} were measured on another {' and '.join(stale)}"
            raise _UndecidedError("not settled", message, f"{self._command_at([self.scale])} --fresh")

    def _difference(self, row: Row, other: Row | None) -> tuple[float, Interval] | None:
        """The difference on the same items, with its interval, when the row was compared with exactly that other row.

        It is far narrower than two separate intervals: what both find hard cancels out. It is exactly 0 if all outputs
        and the quality are the same.
        """
        if other is None or self.claim.factor != 1 or row.fidelity_baseline is None:
            return None
        if row.fidelity_baseline != {"method": other.method, "params": other.params["method"]}:
            return None
        name = self.claim.metric
        if row.value("differing") == 0 and self.metric.kind == "quality" and row.numbers[name] == other.numbers[name]:
            return 0.0, (0.0, 0.0)
        name = f"{name}_difference"
        value, interval = row.value(name), row.interval_of(name)
        return None if value is None or interval is None or not all(map(math.isfinite, interval)) else (value, interval)

    def _against(self, other: Row | None, bound: float) -> str:
        times = f"{number(self.claim.factor)} × " if self.claim.factor != 1 else ""
        name = "" if other is None else f"{other.cell}: "
        shown = with_interval(bound, other.interval_of(self.claim.metric) if other is not None else None)
        return f"against {times}{name}{shown}"

    def _larger_sample(self) -> str:
        """The command that times enough to settle a claim about speed."""
        if self.scale == "mini" and len(self.claim.scales) > 1:
            return self._command_at([s for s in self.claim.scales if s != "mini"])
        return f"{self._command_at([self.scale])} --processes 10 --pairs 3"

    def _larger_set(self) -> str | None:
        """The command that evaluates more items, where the claim stands at a larger scale."""
        larger = [s for s in self.claim.scales if SCALES.index(s) > SCALES.index(self.scale)]
        return self._command_at(larger) if larger else None

    def _command_at(self, scales: Sequence[Scale]) -> str:
        """The command for the next larger of these scales."""
        larger = [s for s in scales if SCALES.index(s) > SCALES.index(self.scale)]
        return f"harness reproduce {self.recipe.name} --scale {min(larger or scales, key=SCALES.index)}"


def _compare(left: Interval, comparison: Comparison, right: Interval) -> Outcome:
    """Whether the comparison holds between all of `left` and all of `right`, between none, or cannot be told."""
    is_so, small = OPERATORS[comparison], comparison in ("below", "at most")
    if is_so(left[small], right[not small]):  # the least favourable ends
        return "holds"
    return "no difference shown" if is_so(left[not small], right[small]) else "does not hold"


def _allowed(direction: str | None, comparison: Comparison, bound: float, equal: float) -> Outcome:
    """A speedup beyond 1, or another comparison beyond its value for equal times, counts only in the direction that the
    timing, which knows the noise floor, shows."""
    if comparison in ("above", "at least") and bound >= equal and direction != FASTER:
        return "no difference shown"
    if comparison in ("below", "at most") and bound <= equal and direction != SLOWER:
        return "no difference shown"
    return "holds"
