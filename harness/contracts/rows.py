"""A row: the stored result of one run of a cell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypedDict, cast

SCHEMA = 3
Status = Literal["ok", "skipped", "failed", "timeout", "killed"]


class Row(TypedDict):
    """One cell's result. Every key is always present; None if it does not apply."""

    schema: int
    recipe: str
    cell: str  # unique in a recipe: "row / column"
    row: str  # labels of the published table if there is one
    column: str
    scale: str
    method: str  # or the name of the analysis
    task: str
    params: dict[str, dict[str, Any]]  # {"method": {...}, "task": {...}}
    seed: int | None
    device: str | None
    status: Status
    error: dict[str, str] | None  # {"message": one line, "log": the end of the process's log}
    metrics: dict[str, float | None]  # None: not a finite number
    intervals: dict[str, list[float]]  # metric -> [low, high], 95%
    counters: dict[str, float | None]
    described: dict[str, dict[str, Any]]  # metric or counter -> label, unit, ..., declared by task and method
    series: dict[str, list[float | None]]  # numbers of each item, or along the items
    examples: list[dict[str, str]]  # worked examples: label -> text
    timing: dict[str, Any] | None  # processes and objections; results derived from them (`measure.evidence`); disturbed
    speed_baseline: dict[str, Any] | None  # {"method", "params"}
    fidelity_baseline: dict[str, Any] | None
    fidelity: dict[str, Any] | None  # {"metric", "is", "bound", "value", "holds"}
    facts: dict[str, Any]  # sizes and names that the task reports
    hashes: dict[str, str]  # data, model, ...; "key" recognises a finished cell
    code: dict[str, Any]  # {"version", "revision", "dirty", "digest"}
    environment: dict[str, Any]  # {"before", "after"}: `harness.measure.environment.capture`
    started: str | None  # ISO 8601, UTC
    seconds: float | None


_EMPTY: dict[str, Callable[[], Any]] = {
    "schema": lambda: SCHEMA, "column": str, "params": lambda: {"method": {}, "task": {}}, "status": lambda: "ok",
    "metrics": dict, "intervals": dict, "counters": dict, "described": dict, "series": dict, "examples": list,
    "facts": dict, "hashes": dict, "code": dict,
    "environment": lambda: {"before": {}, "after": {}},
}  # fmt: skip


def new_row(**known: Any) -> Row:
    """A row with every key: those given, and empty values for the rest. `cell` is made from `row` and `column`.

    Raises `TypeError` for a key that rows do not have.
    """
    if strange := known.keys() - Row.__annotations__.keys():
        raise TypeError(f"rows have no key {', '.join(sorted(strange))}")
    row = {name: _EMPTY.get(name, lambda: None)() for name in Row.__annotations__} | known
    if row["cell"] is None:
        row["cell"] = " / ".join(part for part in (row["row"], row["column"]) if part)
    return cast(Row, row)
