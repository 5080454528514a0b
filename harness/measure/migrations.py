"""Rows of older schemas in today's form, recomputed from their samples."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast

from harness.measure.evidence import state
from harness.measure.timing import MOST_TIMES

DROPPED = ("limit", "share_of_limit")  # what schema 2 held a speedup against: a formula fitted to the run, or a count
NUMBERS = ("metrics", "intervals", "counters")


def restated(row: dict[str, Any]) -> dict[str, Any]:
    """A row of schema 2 as schema 3: its speedup and interval by today's estimator, from its own samples.

    It supports no claim: every process timed the same items, the answers of the timed calls were thrown away, and
    calls of fast layers followed each other with nothing between them.
    """
    row = {**row, **{group: _without(row[group], DROPPED) for group in NUMBERS if group in row}}
    timing = row.get("timing")
    if not timing:
        return row
    paired, items = row["speed_baseline"] is not None, _items(row)
    new = {
        **row,
        "timing": {
            "processes": [_process(process, items, paired) for process in timing["processes"]],
            "objections": [
                "measured before timed answers were compared with the baseline's; every process timed the same "
                f"{items} item(s): measure it again"
            ],
            "disturbed": "",
            **({"counters": timing["counters"]} if "counters" in timing else {}),
        },
    }
    state(cast(Any, new))
    return new


def _without(numbers: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in numbers.items() if name not in names}


def _items(row: dict[str, Any]) -> int:
    """Items of one timed pass: as the row states, else the task's parameter `timed`, else one."""
    stated = row["timing"]["processes"][0].get("items") or row["params"]["task"].get("timed")
    return int(stated or 1)


def _process(process: dict[str, Any], items: int, paired: bool) -> dict[str, Any]:
    """One process's samples: a time a pass instead of a time a call; the noise pair as the baseline timed again."""
    pairs: list[dict[str, Any]] = [
        {
            "order": pair["order"] if paired else "B",
            "count": items,
            "items": list(range(items)) if items <= MOST_TIMES else None,
            "baseline_ns": [pair["baseline_ns"]] if paired else None,
            "method_ns": [pair["method_ns"]],
        }
        for pair in process["pairs"]
    ]
    again = None
    if paired and process["noise"]:
        first, second = process["noise"][0]
        again = {"baseline_ns": [pairs[-1]["baseline_ns"][0] * second / first]}
    kept: dict[str, Any] = {name: process[name] for name in ("phases", "threads", "memory_mib") if name in process}
    return {**kept, "pairs": pairs, "again": again, "hot": [], "quiet": None, "answers_sha256": {}, "fidelity": {}}
