"""What a cell's processes answered, made into its row: metrics over fits, samples, statistics and the decision."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from harness.contracts.rows import Row
from harness.contracts.tasks import Measure
from harness.measure.drivers import Demand, Driver, Essence
from harness.measure.evidence import state
from harness.measure.own_metrics import of
from harness.measure.quiet import disturbance
from harness.plan.cell import Cell
from harness.plan.recipe import Fidelity

OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "below": lambda value, bound: value < bound,
    "above": lambda value, bound: value > bound,
    "at most": lambda value, bound: value <= bound,
    "at least": lambda value, bound: value >= bound,
}
Demanded = Fidelity | Demand  # by the recipe, or else by the contract
COUNTS = ("differing", "wide_differences")  # of items, which only a process with the method at work can make


def record_quality(cell: Cell, row: Row, fits: Sequence[Mapping[str, Any]], demands: Sequence[Demanded]) -> None:
    """Metrics, counters, what they are, series and examples of a cell's fits, and whether the demanded fidelity holds.

    Of several fits a metric is the median, and its interval reaches from the lowest to the highest end of theirs.
    Series and examples are the first fit's.
    """
    first = fits[0]
    row["metrics"] = {name: _median([fit["metrics"].get(name) for fit in fits]) for name in first["metrics"]}
    row["metrics"]["fit_s"] = median(fit["fit_s"] for fit in fits)
    row["metrics"]["fit_memory_mib"] = max(fit["memory_mib"] for fit in fits)
    ends = {name: [fit["intervals"].get(name) for fit in fits] for name in first["intervals"]}
    row["intervals"] = {
        name: [min(low for low, _ in every), max(high for _, high in every)]
        for name, every in ends.items()
        if None not in every
    }
    row["counters"] = {name: _median([fit["counters"].get(name) for fit in fits]) for name in first["counters"]}
    row["counters"]["fits"] = len(fits)
    row["described"] = first["described"]
    row["series"], row["examples"] = first["series"], first["examples"]
    row["fidelity"] = _fidelity(cell, row["metrics"], demands)


def record_timing(
    row: Row, responses: Sequence[dict[str, Any]], objections: Sequence[str], ratios: Mapping[str, Any]
) -> None:
    """Samples of a cell's timing processes and what follows from them, into its row. ratios: of further metrics
    (`harness.contracts.ratios.Ratio`), as dictionaries."""
    memory = responses[0]["memory_mib"]
    if memory.get("method") is not None:
        row["metrics"]["memory_mib"] = memory["method"]
    if memory.get("speed_baseline") is not None:
        row["metrics"]["baseline_memory_mib"] = memory["speed_baseline"]
    row["timing"] = {
        "processes": list(responses),
        "objections": list(objections),
        "ratios": dict(ratios),
        "disturbed": disturbance(response["quiet"] for response in responses),
    }
    state(row)


def objections(
    cell: Cell, row: Row, driver: Driver, files: Sequence[Path], responses: Sequence[Mapping[str, Any]],
    changes: Sequence[str],
) -> list[str]:  # fmt: skip
    """Why the samples of a cell support no claim, whatever they show. files: the answers of its timing processes.
    changes: of the environment meanwhile."""
    if cell.kind == "pair" and cell.speed_baseline is None:
        return []
    found = []
    fidelity = row["fidelity"]
    if fidelity is not None and not fidelity["holds"]:
        value = "not measured," if fidelity["value"] is None else f"{fidelity['value']:.4g}"
        found.append(f"fidelity: {fidelity['metric']} {value} is not {fidelity['is']} {fidelity['bound']:g}")
    found += fidelity_of_timed(driver, cell.fidelity, files, responses)
    if cell.kind == "pair" and not qualities(row):
        found.append("no quality was measured")
    if changes:
        found.append(f"the environment changed during the run: {'; '.join(changes)}")
    return found


def qualities(row: Row) -> dict[str, float]:
    """Finite metrics of the row that say how good its answers are."""
    return {
        name: value
        for name, value in row["metrics"].items()
        if value is not None and isfinite(value) and of(row, name).kind == "quality"
    }


def fidelity_of_timed(
    driver: Driver, demand: Demanded | None, files: Sequence[Path], responses: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Why the answers of the timed calls are not as close as demanded; empty when they are.

    The answers of all processes are compared together: each process times few items, and a share of few items says
    little. A demand fails when no value in the measured interval satisfies it. Where the demanded metric does not
    follow from the answers alone, the contract's own demand counts.
    """
    ours, theirs = _essences(driver, files, "method"), _essences(driver, files, "fidelity_baseline")
    if ours is None or theirs is None:
        return ["the answers of the timed calls were not compared with a baseline's"]
    found = driver.fidelity(ours, theirs)
    for name in COUNTS:  # a process that cannot count leaves the question open
        values = [response["fidelity"].get(name) for response in responses]
        known = [value for value in values if value is not None]
        if len(known) == len(values):
            found[name] = Measure(float(sum(known)))
    demands = [demand] if demand is not None and demand.metric in found else []
    for wanted in [*demands, *(d for d in driver.demands if not demands and d.metric in found)][:1]:
        measure = found[wanted.metric]
        low, high = (measure.value if end is None else end for end in (measure.low, measure.high))
        best = low if wanted.is_ in ("at most", "below") else high
        if not (isfinite(measure.value) and OPERATORS[wanted.is_](best, wanted.bound)):
            return [f"the timed answers' {wanted.metric} of {measure.value:.4g} is not {wanted.is_} {wanted.bound:g}"]
        return []
    return ["the answers of the timed calls show no fidelity that could be judged"]


def _essences(driver: Driver, files: Sequence[Path], role: str) -> Essence | None:
    """The answers of a role in all processes, in order."""
    parts = []
    for file in files:
        with np.load(file) as stored:
            part = {name.removeprefix(f"{role}."): stored[name] for name in stored.files if name.startswith(f"{role}.")}
        if not part:
            return None
        parts.append(part)
    return driver.joined(parts)


def _fidelity(cell: Cell, metrics: Mapping[str, float | None], demands: Sequence[Demanded]) -> dict[str, Any] | None:
    """The demanded fidelity and whether it holds; a demand whose metric was not measured does not hold."""
    demand: Demanded | None = cell.fidelity
    if demand is None and cell.speed_baseline is not None:
        demand = next((one for one in demands if one.metric in metrics), demands[0])
    if demand is None or (cell.speed_baseline is None and demand.metric not in metrics):
        return None
    value = metrics.get(demand.metric)
    return {
        "metric": demand.metric,
        "is": demand.is_,
        "bound": demand.bound,
        "value": value,
        "holds": value is not None and OPERATORS[demand.is_](value, demand.bound),
    }


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if len(known) == len(values) else None
