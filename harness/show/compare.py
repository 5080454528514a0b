"""Two stored runs, cell by cell: what got better or worse, what shows no difference, what cannot be compared and why.

- Speed: a process's ratio, baseline's time over method's, cancels what the machine did. Processes of one number that
  timed the same items are compared in pairs; otherwise the two runs' processes are two samples. A difference counts
  where its interval of `LEVEL` leaves 1 out, and from `LEAST` on: smaller ones are within what the layout of a process
  in memory does.
- Quality: a metric with a direction differs where the runs' 95% intervals lie apart; without intervals (counters, which
  are exact) where the values differ. Answers of equal hash are the same answers.
- Rows of other data or another model, rows that failed, and cells that one run lacks are not comparable.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from harness.common import statistics
from harness.common.errors import RequestError
from harness.contracts.rows import Row
from harness.measure.decision import of_row
from harness.measure.own_metrics import of
from harness.measure.store import RowStore
from harness.measure.timing import ProcessSample
from harness.show.report import latex
from harness.show.report.formats import number, with_interval
from harness.show.report.selection import by_machine, interval_of, machine_of, value_of

Verdict = Literal["worse", "better", "no difference shown", "not comparable"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)  # of a cell, the first that one of its numbers has
LEAST = 0.02  # of a speed: the least relative difference that counts
LEVEL = 0.99  # of a speed difference's interval: a run has tens of cells, of which none should differ by chance
SPEEDUP = "speedup"
SAME_HASHES = ("data", "evaluation", "model")  # hashes in which rows must agree


@dataclass(frozen=True, slots=True)
class Change:
    """One number of both runs. change: of a speed the ratio of the second to the first, with its interval, else None.
    shown: both numbers as text."""

    metric: str
    before: float
    after: float
    change: float | None
    interval: tuple[float, float] | None
    verdict: Verdict
    shown: tuple[str, str]


@dataclass(frozen=True, slots=True)
class Compared:
    """One cell of both runs. reason: why it is not comparable, or what a reader must know."""

    recipe: str
    scale: str
    cell: str
    verdict: Verdict
    reason: str
    changes: tuple[Change, ...] = ()


def stored(place: Path) -> dict[tuple[str, str, str], Row]:
    """(recipe, scale, cell) -> the newest row, pooled with its repeats, of all `rows.jsonl` at a place: a file, or a
    folder and what is in it. Of several machines the one that measured last counts.

    Raises `RequestError` where there is none.
    """
    files = [place] if place.is_file() else sorted(place.rglob("rows.jsonl"))
    rows = [row for file in files for row in RowStore(file).rows()]
    if not rows:
        raise RequestError(
            f"{place} holds no rows; give the folder of a run, which `harness reproduce` makes, or its rows.jsonl"
        )
    rows.sort(key=lambda row: row["started"] or "")
    found: dict[tuple[str, str, str], Row] = {}
    for recipe, scale in dict.fromkeys((row["recipe"], row["scale"]) for row in rows):
        for row in next(iter(by_machine(rows, recipe, scale).values())):
            found[recipe, scale, row["cell"]] = row
    return found


def compare(before: Path, after: Path) -> list[Compared]:
    """All cells of two runs, those of the first in its order."""
    first, second = stored(before), stored(after)
    return [_cell(key, first.get(key), second.get(key)) for key in dict.fromkeys([*first, *second])]


def _cell(key: tuple[str, str, str], before: Row | None, after: Row | None) -> Compared:
    if before is None or after is None:
        return Compared(*key, "not comparable", f"the {'first' if before is None else 'second'} run has no such cell")
    for name, row in (("first", before), ("second", after)):
        if row["status"] != "ok":
            return Compared(*key, "not comparable", f"it {_ended(row)} in the {name} run")
    for name in SAME_HASHES:
        if before["hashes"].get(name) != after["hashes"].get(name):
            return Compared(*key, "not comparable", f"the runs have other {name}: their hashes differ")
    changes = [*_speed(before, after), *quality(before, after)]
    if not changes:
        return Compared(*key, "not comparable", "no number with a direction in both rows")
    found = {change.verdict for change in changes}
    verdict = next(one for one in VERDICTS if one in found)
    return Compared(*key, verdict, "; ".join(_remarks(before, after)), tuple(changes))


def _ended(row: Row) -> str:
    words = {"failed": "failed", "skipped": "was skipped", "timeout": "ran out of time", "killed": "was killed"}
    return words[row["status"]]


def _remarks(before: Row, after: Row) -> Iterator[str]:
    """What a reader of the verdict must know."""
    if machine_of(before) != machine_of(after):
        yield "other machines"
    if before["params"] != after["params"]:
        yield "other parameters"
    if before["speed_baseline"] != after["speed_baseline"]:
        yield "other baselines"
    if (before["timing"] is None) != (after["timing"] is None):
        yield f"timed in the {'second' if before['timing'] is None else 'first'} run alone"


def _speed(before: Row, after: Row) -> Iterator[Change]:
    """The speedup, where both rows have one over the same baseline."""
    values = [value_of(row, SPEEDUP) for row in (before, after)]
    if None in values or before["speed_baseline"] != after["speed_baseline"]:
        return
    one, other = (of_row((row["timing"] or {}).get("processes", ())) for row in (before, after))
    found = speed_change(one, other)
    first, second = (float(value) for value in values if value is not None)
    shown = tuple(with_interval(value_of(row, SPEEDUP), interval_of(row, SPEEDUP)) for row in (before, after))
    if found is None:
        yield Change(SPEEDUP, first, second, None, None, "not comparable", shown)  # type: ignore[arg-type]
        return
    change, (low, high) = found
    verdict: Verdict = "no difference shown"
    if abs(change - 1) >= LEAST and not low <= 1 <= high:
        verdict = "better" if change > 1 else "worse"
    yield Change(SPEEDUP, first, second, change, (low, high), verdict, shown)  # type: ignore[arg-type]


def speed_change(
    before: Sequence[ProcessSample], after: Sequence[ProcessSample]
) -> tuple[float, tuple[float, float]] | None:
    """The second speedup over the first, and its interval; None for fewer than 6 processes of either."""
    ratios = [[math.log(_ratio(process)) for process in side] for side in (before, after)]
    pairs = list(zip(before, after, strict=False))
    same = len(before) == len(after) and all(_items(one) == _items(other) is not None for one, other in pairs)
    found = (  # fmt: skip
        statistics.shift([b - a for a, b in zip(*ratios, strict=True)], LEVEL)
        if same
        else statistics.shift_between(ratios[0], ratios[1], LEVEL)
    )
    if found is None:
        return None
    centre, (low, high) = found
    return math.exp(centre), (math.exp(low), math.exp(high))


def _ratio(process: ProcessSample) -> float:
    totals = [sum(sum(pair[f"{side}_ns"]) for pair in process.pairs) for side in ("baseline", "method")]
    return totals[0] / totals[1]


def _items(process: ProcessSample) -> list[Any] | None:
    """The items that a process timed, in order; None where they are not known."""
    items = [pair["items"] for pair in process.pairs]
    return None if None in items else items


def quality(before: Row, after: Row) -> Iterator[Change]:
    """Metrics and counters with a direction that both rows have."""
    names = [*before["metrics"], *(name for name in before["counters"] if name not in before["metrics"])]
    for name in names:
        metric, values = of(before, name), (value_of(before, name), value_of(after, name))
        if None in values or metric.better == "neither" or metric.kind in ("time", "speed", "memory"):
            continue
        first, second = (float(value) for value in values if value is not None)
        intervals = interval_of(before, name), interval_of(after, name)
        shown = with_interval(first, intervals[0]), with_interval(second, intervals[1])
        yield Change(name, first, second, None, None, _of_quality(first, second, intervals, metric.better), shown)


def _of_quality(
    before: float, after: float, intervals: tuple[tuple[float, float] | None, tuple[float, float] | None], better: str
) -> Verdict:
    if before == after:
        return "no difference shown"
    one, other = intervals
    if one is not None and other is not None and one[0] <= other[1] and other[0] <= one[1]:
        return "no difference shown"
    return "better" if (after > before) == (better == "higher") else "worse"


# ---------------------------------------------------------------- what people read

HEADER = ("cell", "metric", "before", "after", "change", "verdict")


def lines(compared: Sequence[Compared]) -> list[tuple[str, ...]]:
    """A line for each cell's speed and for each metric that changed; one for a cell of which nothing did."""
    found: list[tuple[str, ...]] = []
    for one in compared:
        name = f"{one.recipe}, {one.scale}: {one.cell}"
        shown = [c for c in one.changes if c.metric == SPEEDUP or c.verdict in ("better", "worse")]
        for change in shown:
            by = f"{with_interval(change.change, change.interval)} times" if change.change is not None else ""
            found.append((name, change.metric, *change.shown, by, change.verdict))
        if not shown:
            found.append((name, "", "", "", "", one.verdict))
        if one.reason:
            found.append((name, "", "", "", one.reason, one.verdict if one.verdict == "not comparable" else "note"))
    return found


def summary(compared: Sequence[Compared]) -> str:
    """How many cells are better, worse, ..."""
    parts = [f"{number(sum(one.verdict == verdict for one in compared))} {verdict}" for verdict in VERDICTS]
    return f"{number(len(compared))} cells: {', '.join(parts)}"


def as_markdown(compared: Sequence[Compared]) -> str:
    """A Markdown table."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    return "\n".join([line(HEADER), line(["---"] * len(HEADER)), *map(line, lines(compared)), "", summary(compared)])


def as_json(compared: Sequence[Compared]) -> str:
    """All numbers."""
    return json.dumps([asdict(one) for one in compared], indent=1)


def as_text(compared: Sequence[Compared]) -> str:
    """Lines of aligned columns."""
    table = [HEADER, *lines(compared)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    rows = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in table]
    return "\n".join([*rows, "", summary(compared)])


def as_latex(compared: Sequence[Compared]) -> str:
    """A table for booktabs."""
    return latex.floating(summary(compared), [latex.tabular(HEADER, [lines(compared)], "l" * len(HEADER))])


FORMATS: Mapping[str, Callable[[Sequence[Compared]], str]] = {
    "text": as_text, "md": as_markdown, "latex": as_latex, "json": as_json,
}  # fmt: skip
