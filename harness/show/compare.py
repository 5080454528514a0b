"""Two stored runs, cell by cell: what got better or worse, what shows no difference, what cannot be compared and why.

- Speed: a process's ratio, baseline's time over method's, cancels what the machine did. Processes of one number that
  timed the same items are compared in pairs; otherwise the two runs' processes are two samples. A difference counts
  where its interval of `LEVEL` leaves 1 out, and from `LEAST` on: smaller ones are within what the layout of a process
  in memory does. What another random fit would change is not in the interval.
- Quality: a metric with a direction differs where the runs' 95% intervals lie apart; without intervals (counters, which
  are exact) where the values differ.
- Rates, and the times of a cell without a speedup, are notes where their intervals lie apart: what else the machine did
  is in them, so they decide nothing.
- Rows of other data or another model, rows that failed, and cells that one run lacks are not comparable.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd

from harness.common import statistics
from harness.common.errors import RequestError
from harness.decision import ProcessSample
from harness.groups import by_cell, grouped
from harness.measure.store import RowStore
from harness.rows import Baseline, Row
from harness.show import frame
from harness.show.formats import aligned, number, with_interval
from harness.show.markup import markdown_table

VERDICTS = ("worse", "better", "no difference shown", "not comparable")  # of a cell, the first that a number has
NOTE = "note"  # of a line that decides nothing
LEAST = 0.02  # of a speed: the least relative difference that counts
LEVEL = 0.99  # of a speed difference's interval: a run has tens of cells, of which none should differ by chance
SPEEDUP = "speedup"
SAME_HASHES = ("data", "evaluation", "model")  # hashes in which rows must agree
COLUMNS = ("cell", "metric", "before", "after", "change", "verdict")
Cell = tuple[str, str, str]  # recipe, scale, name


def rows_at(place: Path) -> dict[Cell, Row]:
    """The newest row of each cell, pooled with its repeats, of all `rows.jsonl` at a place: a file, or a folder and
    what is in it. Of several machines the one that measured last counts.

    Raises `RequestError` where there is none.
    """
    files = [place] if place.is_file() else sorted(place.rglob("rows.jsonl"))
    rows = sorted(chain(*(RowStore(file).rows() for file in files)), key=lambda row: row.started or "")
    if not rows:
        raise RequestError(
            f"{place} holds no rows; give the folder of a run, which `harness reproduce` makes, or its rows.jsonl"
        )
    return {
        (*key, name): row
        for key, group in grouped(((row.recipe, row.scale), row) for row in rows).items()
        for name, row in by_cell(row for row in group if row.machine == group[-1].machine).items()
    }


def compare(before: Path, after: Path) -> pd.DataFrame:
    """All cells of two runs, those of the first in its order, with the columns recipe, scale and `COLUMNS`.

    Each cell has a line for its speed and one for each metric that changed; a cell without either has one line. Lines
    without a metric say in `change` what a reader must know. `cell_verdict` is the whole cell's.
    """
    first, second = rows_at(before), rows_at(after)
    lines = []
    for key in dict.fromkeys([*first, *second]):
        one, other = first.get(key), second.get(key)
        reason = _incomparable(one, other)
        if one is None or other is None or reason:
            lines.append((*key, "", "", "", reason, VERDICTS[3], VERDICTS[3]))
            continue
        found = [*_speed(one, other), *_qualities(one, other)]
        verdicts = {verdict for *_, verdict in found} - {NOTE} or {VERDICTS[3]}
        whole = next(verdict for verdict in VERDICTS if verdict in verdicts)
        shown = [line for line in found if line[0] == SPEEDUP or line[-1] in (*VERDICTS[:2], NOTE)]
        notes = _remarks(one, other) if found else {"no number with a direction in both rows": VERDICTS[3]}
        lines += [(*key, *line, whole) for line in shown or [("", "", "", "", whole)] if found]
        lines += [(*key, "", "", "", words, verdict, whole) for words, verdict in notes.items()]
    return pd.DataFrame(lines, columns=["recipe", "scale", *COLUMNS, "cell_verdict"])


def is_worse(compared: pd.DataFrame, strict: bool = False) -> bool:
    """Whether any cell got worse; strict: or any number of one could not be compared."""
    return bool(compared.verdict.isin(["worse", *["not comparable"] * strict]).any())


Line = tuple[str, str, str, str, str]  # metric, before, after, change, verdict


def _incomparable(before: Row | None, after: Row | None) -> str:
    """Why two rows of a cell cannot be compared; empty where they can."""
    if before is None or after is None:
        return f"the {'first' if before is None else 'second'} run has no such cell"
    words = {"failed": "failed", "skipped": "was skipped", "timeout": "ran out of time", "killed": "was killed"}
    for name, row in (("first", before), ("second", after)):
        if row.status != "ok":
            return f"it {words[row.status]} in the {name} run"
    other = (name for name in SAME_HASHES if before.hashes.get(name) != after.hashes.get(name))
    return next((f"the runs have other {name}: their hashes differ" for name in other), "")


def _remarks(before: Row, after: Row) -> dict[str, str]:
    """What a reader of the verdict must know -> `note`, or `not comparable` where speeds cannot be compared."""
    apart = VERDICTS[3]
    remarks = [
        ("other machines", NOTE, before.machine != after.machine),
        ("other parameters", NOTE, before.params != after.params),
        ("other baselines", apart, not _alike(before.speed_baseline, after.speed_baseline)),
        ("timed in the second run alone", apart, not before.processes and after.processes),
        ("timed in the first run alone", apart, before.processes and not after.processes),
    ]
    return {words: verdict for words, verdict, holds in remarks if holds}


def _alike(before: Baseline | None, after: Baseline | None) -> bool:
    """Whether two baselines are the same method with the same values of the parameters that both have."""
    if before is None or after is None:
        return before is after
    ours, theirs = before["params"], after["params"]
    same = all(ours[name] == theirs[name] for name in ours.keys() & theirs.keys())
    return bool(before["method"] == after["method"]) and same


def _speed(before: Row, after: Row) -> list[Line]:
    """The speedup, where both rows have one over the same baseline."""
    if before.speedup is None or after.speedup is None or not _alike(before.speed_baseline, after.speed_baseline):
        return []
    shown = [with_interval(row.speedup, row.interval_of(SPEEDUP)) for row in (before, after)]
    found = speed_change(before.processes, after.processes)
    if found is None:
        return [(SPEEDUP, *shown, "", VERDICTS[3])]  # type: ignore[list-item]
    change, (low, high) = found
    differs = abs(change - 1) >= LEAST and not low <= 1 <= high
    verdict = ("better" if change > 1 else "worse") if differs else VERDICTS[2]
    return [(SPEEDUP, *shown, f"{with_interval(change, (low, high))} times", verdict)]  # type: ignore[list-item]


def speed_change(
    before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]
) -> tuple[float, tuple[float, float]] | None:
    """The second speedup over the first, and its interval, from the processes of two rows; None for fewer than 6 of
    either. The interval is Student's, of log ratios: of pairs, or of two samples (Welch)."""
    from scipy.stats import ttest_ind, ttest_rel  # takes a second

    if min(len(before), len(after)) < statistics.LEAST_PROCESSES:
        return None
    samples = [[ProcessSample.of(process) for process in side] for side in (before, after)]
    first, second = ([math.log(one.total("baseline") / one.total("method")) for one in side] for side in samples)
    items = [[_items(process) for process in side] for side in (before, after)]
    paired = items[0] == items[1] and None not in items[0]
    with warnings.catch_warnings(action="ignore"):  # samples without variance
        test = ttest_rel(second, first) if paired else ttest_ind(second, first, equal_var=False)
        low, high = test.confidence_interval(LEVEL)
    return math.exp(fmean(second) - fmean(first)), (math.exp(low), math.exp(high))


def _items(process: Mapping[str, Any]) -> list[Any] | None:
    """The items that a process timed, in order; None where they are not known."""
    items = [pair["items"] for pair in process["pairs"]]
    return None if None in items else items


def _qualities(before: Row, after: Row) -> list[Line]:
    """Metrics, counters, times and rates with a direction that both rows have."""
    found: list[Line] = []
    for name, (value, span) in before.numbers.items():
        metric = before.metric(name)
        if name not in after.numbers or metric.better == "neither" or metric.kind not in ("quality", "counter", "time"):
            continue
        later, later_span = after.numbers[name]
        apart = not (span and later_span) or span[0] > later_span[1] or later_span[0] > span[1]
        verdict, change = VERDICTS[2], ""
        if metric.kind == "time":
            timed = before.speedup is not None and after.speedup is not None
            if not (span and later_span and apart) or (metric.better == "lower" and timed):
                continue
            verdict, change = NOTE, f"{number(later / value, 3)} times"
        elif value != later and apart:
            verdict = "better" if (later > value) == (metric.better == "higher") else "worse"
        found.append((name, with_interval(value, span), with_interval(later, later_span), change, verdict))
    return found


# ---------------------------------------------------------------- what people read


def summary(compared: pd.DataFrame) -> str:
    """How many cells are better, worse, ..."""
    cells = compared.drop_duplicates(frame.KEY).cell_verdict
    parts = [f"{number(int((cells == verdict).sum()))} {verdict}" for verdict in VERDICTS]
    return f"{number(len(cells))} cells: {', '.join(parts)}"


def _shown(compared: pd.DataFrame) -> pd.DataFrame:
    names = compared.recipe + ", " + compared.scale + ": " + compared.cell
    return compared.assign(cell=names)[list(COLUMNS)]


def as_text(compared: pd.DataFrame) -> str:
    """Lines of aligned columns."""
    shown = _shown(compared)
    return "\n".join([*aligned([list(shown), *shown.to_numpy().tolist()]), "", summary(compared)])


def as_markdown(compared: pd.DataFrame) -> str:
    """A Markdown table."""
    return f"{markdown_table(COLUMNS, _shown(compared).to_numpy().tolist())}\n\n{summary(compared)}"


def as_github(compared: pd.DataFrame) -> str:
    """A step summary: the counts, the lines that got worse or better or cannot be compared, and all lines folded
    away."""
    changed = _shown(compared[compared.verdict.isin(["worse", "better", "not comparable"])])
    told = markdown_table(COLUMNS, changed.to_numpy().tolist()) if len(changed) else "Nothing got worse or better."
    every = f"<details><summary>All lines</summary>\n\n{as_markdown(compared)}\n\n</details>"
    return f"### {summary(compared)}\n\n{told}\n\n{every}"


FORMATS: Mapping[str, Callable[[pd.DataFrame], str]] = {
    "text": as_text,
    "md": as_markdown,
    "github": as_github,
    "json": lambda found: found.to_json(orient="records", indent=1),
}
