"""Which rows a report shows: of each cell at one scale the newest with its repeats, those of other machines apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.contracts.rows import Row
from harness.measure.environment import machine_id
from harness.measure.evidence import pooled, repeats


def machine_of(row: Row) -> str:
    """The machine a row was measured on (`environment.machine_id`), or "" when the row does not say; with the name of
    another person who measured it, and with the kind of rows that do not lead (`harness.show.stored`)."""
    before, person = row["environment"].get("before"), row["environment"].get("by") or {}
    parts = [machine_id(before) if before else "", person.get("name", ""), row["environment"].get("kind", "")]
    return " ".join(part for part in parts if part)


def by_machine(rows: Sequence[Row], recipe: str, scale: str, machine: str | None = None) -> dict[str, list[Row]]:
    """Machine -> its newest row of each cell, pooled with its repeats. First comes the machine asked for, be it without
    rows, or else the one that measured last.

    rows: oldest first, of any recipe and scale.
    """
    found: dict[str, dict[str, list[Row]]] = {} if machine is None else {machine: {}}
    first = machine
    for row in rows:
        if row["recipe"] == recipe and row["scale"] == scale:
            where = machine_of(row)
            found.setdefault(where, {}).setdefault(row["cell"], []).append(row)
            first = where if machine is None else machine
    order = sorted(found, key=lambda name: name != first)  # stable: the others in the order they appeared
    return {name: [pooled(repeats(every)) for every in found[name].values()] for name in order}


def value_of(row: Row, name: str) -> float | None:
    """A number of a row by name: a metric, else a counter; None when the row has neither or it is not finite."""
    for group in (row["metrics"], row["counters"]):
        if group.get(name) is not None:
            return group[name]
    return None


def interval_of(row: Row, name: str) -> tuple[float, float] | None:
    """The 95% interval of a metric, or None."""
    interval = row["intervals"].get(name)
    if interval is None or len(interval) != 2 or None in interval:
        return None
    return interval[0], interval[1]


def baseline_name(row: Row, baseline: Mapping[str, Any]) -> str:
    """`lm`; or `knnlm (foss=0.0)` next to a row of the same method with another `foss`."""
    own = row["params"]["method"] if baseline["method"] == row["method"] else {}
    differing = [f"{name}={value}" for name, value in baseline["params"].items() if name in own and own[name] != value]
    return str(baseline["method"]) + (f" ({', '.join(differing)})" if differing else "")
