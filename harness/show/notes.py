"""What a reader must know of a table: where its numbers come from (above it), what they mean (below), and what the task
and its models are."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import geometric_mean
from typing import Any

from harness.decision import is_decided
from harness.groups import grouped, paired
from harness.plan.schema import ScaleSpec
from harness.rows import Row
from harness.show.formats import number, with_interval
from harness.show.published import Number
from harness.show.stored import Stored, place_of

UNDECIDED = ("no claim", "exploratory", "no difference shown")
ERROR = 0.05  # of the rule of `harness.decision`, by simulation
RANKED = 8  # ratios of one method's time to the next's that a note has
PLACES = 4  # columns or cells named before "and so many more"


def above(one: Stored) -> dict[str, str]:
    """What stands above a table, one short line each: source, scale, machine, sample, code. What the recipe says of a
    scale is true only of cells that it still has."""
    rows, cells = one.rows, {cell.name for cell in one.cells}
    of_today = not cells or not rows or any(row.cell in cells for row in rows)
    note = one.recipe.scales.get(one.scale, ScaleSpec()).note.rstrip(".") if of_today else ""
    scale = f"{one.scale}: {note}" if note else str(one.scale)
    lines = {"After" if one.recipe.paper else "From": one.recipe.source, "Scale": scale}
    if not rows:
        return {**lines, "Rows": "nothing has been measured yet"}
    return {
        **lines,
        "Machine": f"{place_of(rows)}; device {_each(rows, 'device')}",
        "Sample": f"{_samples(rows)}; seed {_each(rows, 'seed')}",
        "Code": _code(rows),
    }


def about(rows: Sequence[Row]) -> list[tuple[str, str, str]]:
    """What the task, its data and its models are: (where it holds, name, value). First what holds of all finished rows,
    then, where rows' models differ, what is each model's own, such as its perplexity."""
    shared = _shared(rows)
    return [*_named(_each(rows, "task") if rows else "", shared), *_by_model(rows, shared)]


def below(one: Stored, used: Sequence[Number], setting: str) -> list[str]:
    """Sentences on what the columns mean, which cells failed and why decisions are what they are. used: the published
    numbers in the table; setting: theirs, where all have one."""
    rows, lines = one.rows, []
    if any(row.intervals or (row.summary and row.summary.interval) for row in rows):
        lines.append("[low, high] is the 95% interval.")
    if any(row.speed_baseline for row in rows):
        lines.append(
            "speedup = the baseline's time / the method's on the same items, summed over processes; above 1 is faster."
        )
    if any(row.processes for row in rows):
        lines += [
            "time per item: of the same passes. items: timed over all processes, each of which draws its own.",
            "Quality, and what a decoder counts, come from a separate, untimed pass over the whole evaluation set.",
        ]
    if used:
        where = f"({setting})" if setting else "for the setting named last"
        comparable = one.scale in one.recipe.data_of_paper
        means = "× is measured / published" if comparable else "measured here on other data than the paper's"
        lines.append(f"paper is the published number {where}; {means}.")
    for n in used:
        if n.note.startswith(("uncertain", "lower bound", "upper bound")):
            lines.append(f"Published {n.metric} of {n.row}, {n.column}: {n.note}.")
    for row in rows:
        if row.status != "ok":
            lines.append(f"{row.cell}: {row.status}, {(row.error or {}).get('message') or 'no message'}")
    return [
        *lines, *_ranked(rows), *_by_chance(rows), *_disturbed(rows), *_fitted_once(rows), *_across_settings(rows),
        *_reasons(rows),
    ]  # fmt: skip


def _ranked(rows: Sequence[Row]) -> list[str]:
    """The methods that were timed in the same processes, by their own times, each with its ratio to the next."""
    columns: dict[frozenset[str], list[Row]] = {}
    for row in rows:
        blocks = frozenset(process["block"] for process in row.processes if process.get("block"))
        if blocks and row.value("latency_s"):
            columns.setdefault(blocks, []).append(row)
    lines = []
    for group in columns.values():
        ordered = sorted(group, key=lambda row: row.value("latency_s") or 0.0)
        shared = {row.column for row in group} == {group[0].column}
        parts = [
            f"{row.row if shared else row.cell} is {with_interval(found.speedup, found.interval)} times as fast as "
            f"{slower.row if shared else slower.cell}"
            for row, slower in pairwise(ordered)
            if (found := paired(row, slower)) is not None and found.interval
        ]
        column = f", {group[0].column}" if shared and group[0].column else ""
        if len(parts) > RANKED:
            lines.append(f"{len(ordered)} rows were timed in the same processes{column}; their times can be compared.")
        elif parts:
            lines.append(f"Timed in the same processes{column}: {'; '.join(parts)}.")
    return lines


def _by_chance(rows: Sequence[Row]) -> list[str]:
    """How many of the decisions chance would make at most, if no method differed from its baseline."""
    if (decided := sum(is_decided(row.decision) for row in rows)) < 2:
        return []
    return [
        f"{decided} comparisons were decided at 95%: if no method differed from its baseline, at most "
        f"{number(decided * ERROR)} of them would be called faster or slower by chance."
    ]


def _across_settings(rows: Sequence[Row]) -> list[str]:
    """One sentence for each row label whose columns are speedups on different task settings against one baseline.

    Columns of one setting (a sweep of a method's parameter) are alternatives, and no mean of them says anything. Rows
    that support no claim of speed have no part in a mean.
    """
    good = [row for row in rows if row.status == "ok" and row.speed_baseline and row.speedup]
    lines = []
    for label, group in grouped((row.row, row) for row in good if is_decided(row.decision)).items():
        settings = {json.dumps([row.task, row.params["task"]], sort_keys=True) for row in group}
        baselines = {(row.speed_baseline or {}).get("method") for row in group}
        if len(group) < 2 or len(settings) < len(group) or len(baselines) > 1:
            continue
        speedups = {row.column: row.speedup for row in group if row.speedup is not None}
        mean, worst = geometric_mean(speedups.values()), min(speedups, key=lambda column: speedups[column])
        lines.append(
            f"{label}, speedup over {len(group)} settings: geometric mean {number(mean)}, "
            f"worst {number(speedups[worst])} ({worst})."
        )
    return lines


def _disturbed(rows: Sequence[Row]) -> list[str]:
    """What disturbed the timing of which cells."""
    found = grouped((row.disturbed, row.cell) for row in rows if row.disturbed)
    return [f"Disturbed: {what} ({'; '.join(names)})." for what, names in found.items()]


def _fitted_once(rows: Sequence[Row]) -> list[str]:
    """Which cells' intervals do not cover how their method was fitted, where that is random."""
    names = [row.cell for row in rows if row.fitted_once and row.processes and row.speed_baseline]
    return [f"Fitted once, at random: the interval does not cover the fit ({'; '.join(names)})."] if names else []


def _reasons(rows: Sequence[Row]) -> list[str]:
    """Why cells got no claim."""
    found = grouped((f"{row.decision}: {row.reason}", row.cell) for row in rows if row.decision in UNDECIDED)
    compared = sum(bool(row.speed_baseline or row.decision) for row in rows)
    return [
        f"{why} ({'all compared cells' if 1 < len(names) == compared else '; '.join(names)})."
        for why, names in found.items()
    ]


def _each(rows: Sequence[Row], key: str) -> str:
    values = dict.fromkeys(str(getattr(row, key)) for row in rows)
    return " and ".join(values)


def _samples(rows: Sequence[Row]) -> str:
    shapes = dict.fromkeys((*row.shape, int(row.counters.get("fits") or 1)) for row in rows if row.processes)
    named = (
        f"{n} process{'es' * (n > 1)} × {m} pair{'s' * (m > 1)}" + (f" over {fits} fits" if fits > 1 else "")
        for n, m, fits in shapes
    )
    return " or ".join(named) or "not timed"


def _code(rows: Sequence[Row]) -> str:
    versions = dict.fromkeys(
        (code.get("version"), code.get("revision"), code.get("dirty")) for code in (row.code for row in rows)
    )
    return " and ".join(
        f"version {version or 'unknown'}"
        + (f" at {revision[:10]}" if revision else ", no revision known")
        + (" with uncommitted changes" if dirty else "")
        for version, revision, dirty in versions
    )


def _shared(rows: Sequence[Row]) -> dict[str, str | int | float]:
    """Scalar facts on which all finished rows agree."""
    good = [row.facts for row in rows if row.status == "ok"]
    if not good:
        return {}
    scalars = {k: v for k, v in good[0].items() if isinstance(v, str | int | float) and not isinstance(v, bool)}
    return {name: value for name, value in scalars.items() if all(facts.get(name) == value for facts in good)}


def _by_model(rows: Sequence[Row], shared: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """For each model where the rows' models differ: where it stands (columns of its own, else cells), and the facts
    that are its own, such as its perplexity and how training came to it."""
    good = [row for row in rows if row.status == "ok" and row.hashes.get("model")]
    models = grouped((row.hashes["model"], row) for row in good)
    if len(models) < 2:
        return []
    columns = Counter(column for group in models.values() for column in {row.column for row in group})
    lines = []
    for group in models.values():
        own = {name: value for name, value in _shared(group).items() if name not in shared}
        places = dict.fromkeys(row.column if columns[row.column] == 1 else row.cell for row in group)
        where = ", ".join(list(places)[:PLACES]) + (f" and {len(places) - PLACES} more" if len(places) > PLACES else "")
        lines += _named(where, own)
    return lines


def _named(where: str, facts: Mapping[str, str | int | float]) -> list[tuple[str, str, str]]:
    return [
        (where, name.replace("_", " "), value if isinstance(value, str) else number(value))
        for name, value in facts.items()
    ]
