"""Rows read together: those of one cell, of two methods timed in the same processes, of one column."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import mean, median
from typing import Any, TypeVar

from harness.decision import SPREAD, ProcessSample, Summary, decide, doubts
from harness.rows import Baseline, Row

K = TypeVar("K")
V = TypeVar("V")


def newest(rows: Sequence[Row]) -> Row:
    """One row for all rows of a cell, oldest first: the newest, with the processes of all that repeat it.

    A repeat ended well under the same key and the same state of the code. No repeat displaces another: this rule is
    stated before anything is measured. A copy of a row (kept, and still among the runs) is no repeat.
    """
    parts: list[Row] = []
    for row in repeats(rows):
        if row.processes and all(row.processes != part.processes for part in parts):
            parts.append(row)
    if len(parts) < 2:
        return rows[-1]
    return replace(
        rows[-1],
        processes=[process for part in parts for process in part.processes],
        objections=list(dict.fromkeys(reason for part in parts for reason in part.objections)),
        disturbed="; ".join(dict.fromkeys(part.disturbed for part in parts if part.disturbed)),
    )


def repeats(rows: Sequence[Row]) -> list[Row]:
    """The newest of one cell's rows and the earlier ones that repeat it, oldest first."""
    last = rows[-1]

    def identity(row: Row) -> tuple[Any, ...]:
        return row.hashes.get("key"), row.code.get("revision"), row.code.get("dirty")

    if last.status != "ok" or not last.hashes.get("key"):
        return [last]
    return [*(row for row in rows[:-1] if row.status == "ok" and identity(row) == identity(last)), last]


def by_cell(rows: Iterable[Row]) -> dict[str, Row]:
    """Cell -> its `newest` row, in the order in which cells first appear. rows: oldest first."""
    return {cell: newest(every) for cell, every in grouped((row.cell, row) for row in rows).items()}


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Key -> the values that come with it, both in the order of the pairs."""
    found: dict[K, list[V]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


def paired(row: Row, other: Row) -> Summary | None:
    """What the processes that two rows share say of their methods: `speedup` is how many times as fast the row's method
    is as the other's, by their own times. None where they share no process."""
    theirs = {process.get("block"): process for process in other.processes if process.get("block")}
    both = [(one, theirs[one["block"]]) for one in row.processes if one.get("block") in theirs]
    if not both:
        return None

    samples = [
        ProcessSample(
            [{**a, "baseline_ns": b["method_ns"]} for a, b in zip(ours["pairs"], others["pairs"], strict=True)],
            {"baseline_ns": (others.get("again") or {}).get("method_ns")},  # for the noise floor
            fit=len(both) * ours.get("fit", 0) + others.get("fit", 0),
        ) for ours, others in both
    ]  # fmt: skip
    # Whether a method remembers or prepares answers shows next to the common baseline, not next to the other method
    shown = [doubts([ProcessSample.of(one) for one in every.processes]) for every in (row, other)]
    objections = list(dict.fromkeys([*row.objections, *other.objections, *shown[0], *shown[1]]))
    return decide(samples, exploratory=row.scale == "mini", objections=objections, equal=row.equal)


def with_one_baseline(rows: Iterable[Row]) -> list[Row]:
    """The rows of one table. Those next to whose method the baseline of their column took another time than it usually
    did, by the column's median, have an objection."""
    found = list(rows)
    columns: dict[tuple[str, int | None], list[tuple[Row, float]]] = {}
    for row in found:
        if row.speed_baseline and row.speedup is not None:
            threads = {n for library, n in (row.processes[0].get("threads") or {}).items() if library != "usable_cores"}
            samples = [ProcessSample.of(process) for process in row.processes]
            time = median(one.total("baseline") / one.items for one in samples)
            key = _side(row, row.speed_baseline), max(threads, default=None)
            columns.setdefault(key, []).append((row, time))
    objected: dict[int, Row] = {}
    for group in columns.values():
        usual = median(time for _, time in group)
        for row, time in group:
            if max(time / usual, usual / time) > SPREAD:
                words = (
                    f"the baseline took {time / usual:.2f} times as long as next to the other methods of the column "
                    f"(at most {SPREAD} is allowed, up or down)"
                )
                objected[id(row)] = replace(row, objections=[*row.objections, words])
    return [objected.get(id(row), row) for row in found]


def with_times_of_baselines(rows: Iterable[Row]) -> list[Row]:
    """The rows of one table. One that was not timed, and is the speed baseline of others in its column, gets its time
    from the processes of one of them: one without objections, whose timed answers are most often the baseline's (the
    first of equals)."""
    found = list(rows)
    beside: dict[str, list[Row]] = {}
    for row in found:
        if row.speed_baseline and row.processes:
            beside.setdefault(_side(row, row.speed_baseline), []).append(row)

    def timed(row: Row) -> Row:
        others = beside.get(_side(row, {"method": row.method, "params": row.params["method"]}), [])
        if row.processes or row.status != "ok" or not others:
            return row
        chosen = max(others, key=lambda other: (not other.objections, mean(map(_equal_answers, other.processes))))
        return replace(row, processes=[_of_baseline(process) for process in chosen.processes])

    return [timed(row) for row in found]


def _side(row: Row, method: Baseline) -> str:
    """A method, as the row's column has it."""
    return json.dumps([row.column, row.task, row.params["task"], method], sort_keys=True)


def _equal_answers(process: Mapping[str, Any]) -> float:
    return float((process.get("fidelity") or {}).get("exact_match") or 0.0)


def _of_baseline(process: Mapping[str, Any]) -> dict[str, Any]:
    """What a process timed of the baseline alone."""
    sums, memory = process.get("sums") or {}, process.get("memory_mib")
    if _equal_answers(process) == 1 and "method.tokens" in sums:  # rows of before have no sum of the baseline's
        sums = {"speed_baseline.tokens": sums["method.tokens"], **sums}
    return {
        "pairs": [{**pair, "method_ns": pair["baseline_ns"], "baseline_ns": None} for pair in process["pairs"]],
        "open_s": {"method": (process.get("open_s") or {}).get("speed_baseline")},
        "sums": {
            name.replace("speed_baseline", "method"): value
            for name, value in sums.items() if name.startswith("speed_baseline.")
        },
        "memory_mib": memory and {"method": memory.get("speed_baseline")},
    }  # fmt: skip
