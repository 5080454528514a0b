"""What a cell's processes answered, made into the fields of its row: metrics over fits, objections to its samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.common import statistics
from harness.contracts.tasks import Measure
from harness.measure.drivers import Demand, Driver, Essence
from harness.rows import OPERATORS, Row

if TYPE_CHECKING:  # what a recipe may say, its figure for one, changes no row
    from harness.plan.cell import Cell
    from harness.plan.schema import Fidelity

    Demanded = Fidelity | Demand  # by the recipe, or else by the contract

COUNTS = ("differing", "wide_differences")  # computed in the worker, where the method is open
HIGHEST = (*COUNTS, "widest_gap")  # over fits


def of_quality(cell: Cell, fits: Sequence[Mapping[str, Any]], demands: Sequence[Demanded]) -> dict[str, Any]:
    """Fields of a row: metrics, counters, what they are, series and examples of a cell's fits, and the fidelity that is
    demanded.

    Of several fits a metric is the median, one of differences the highest, and an interval reaches from the lowest
    to the highest end of theirs. Series and examples are the first fit's.
    """
    first = fits[0]
    metrics = {name: _over_fits(name, [fit["metrics"].get(name) for fit in fits]) for name in first["metrics"]}
    ends = {name: [fit["intervals"].get(name) for fit in fits] for name in first["intervals"]}
    counters = {name: _over_fits(name, [fit["counters"].get(name) for fit in fits]) for name in first["counters"]}
    return {
        "fidelity": _demanded(cell, metrics, demands),
        "metrics": {
            **metrics,
            "fit_s": median(fit["fit_s"] for fit in fits),
            "fit_memory_mib": max(fit["memory_mib"] for fit in fits),
        },
        "intervals": {
            name: [min(low for low, _ in every), max(high for _, high in every)]
            for name, every in ends.items()
            if None not in every
        },
        "counters": {**counters, "fits": len(fits)},
        **{part: first[part] for part in ("described", "series", "examples")},
    }


def objections(
    cell: Cell, row: Row, driver: Driver, files: Sequence[Path], responses: Sequence[Mapping[str, Any]],
    changes: Sequence[str],
) -> list[str]:  # fmt: skip
    """Why the samples of a cell support no claim, whatever they show. row: its answers' metrics. files: the answers of
    its timing processes. changes: of the environment meanwhile."""
    if cell.kind == "pair" and cell.speed_baseline is None:
        return []
    found = []
    if row.fidelity is not None and not row.is_faithful:
        metric, comparison, bound = (row.fidelity[part] for part in ("metric", "is", "bound"))
        value = row.value(metric)
        shown = "not measured," if value is None else f"{value:.4g}"
        found.append(f"fidelity: {metric} {shown} is not {comparison} {bound:g}")
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
        for name in row.metrics
        if row.metric(name).kind == "quality" and (value := row.value(name)) is not None
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
    wanted = [*demands, *(d for d in driver.demands if not demands and d.metric in found)][:1]
    if not wanted:
        return ["the answers of the timed calls show no fidelity that could be judged"]
    failed = [one for one in (*wanted, *driver.limits) if one.metric in found and not _is_met(found[one.metric], one)]
    if failed:
        return [
            f"the timed answers' {d.metric} of {found[d.metric].value:.4g} is not {d.is_} {d.bound:g}" for d in failed
        ]
    by_time = _by_time_saved(driver, files, ours, theirs)
    if by_time is not None and by_time[0] == wanted[0].metric and not _is_met(by_time[1], wanted[0]):
        name, measure = by_time
        return [
            f"weighted by the time that each answer saved, the timed answers' {name} is {measure.value:.4g}, not "
            f"{wanted[0].is_} {wanted[0].bound:g}"
        ]
    return []


def _is_met(measure: Measure, wanted: Demanded) -> bool:
    """Whether a value in the measured interval satisfies the demand."""
    low, high = (measure.value if end is None else end for end in (measure.low, measure.high))
    best = low if wanted.is_ in ("at most", "below") else high
    return isfinite(measure.value) and OPERATORS[wanted.is_](best, wanted.bound)


def _by_time_saved(driver: Driver, files: Sequence[Path], ours: Essence, theirs: Essence) -> tuple[str, Measure] | None:
    """The agreement of the timed answers in which each counts as much as the time that the method saved on it: wrong
    answers must not be the ones that save."""
    times, agreement = _essences(driver, files, "time", joined=False), driver.agreement(ours, theirs)
    if agreement is None or times is None or "speed_baseline_ns" not in times:
        return None
    name, values = agreement
    saved = np.maximum(times["speed_baseline_ns"] - times["method_ns"], 0).astype(np.float64)
    if not saved.any() or len(values) != len(saved):  # a call of several items says nothing of one
        return None
    return name, Measure.of(*statistics.ratio_of_totals(saved * values, saved))


def _essences(driver: Driver, files: Sequence[Path], role: str, joined: bool = True) -> Essence | None:
    """The answers of a role in all processes, in order; joined=False: arrays that the driver does not know."""
    parts = []
    for file in files:
        with np.load(file) as stored:
            part = {name.removeprefix(f"{role}."): stored[name] for name in stored.files if name.startswith(f"{role}.")}
        if not part:
            return None
        parts.append(part)
    return driver.joined(parts) if joined else {n: np.concatenate([part[n] for part in parts]) for n in parts[0]}


def _demanded(cell: Cell, metrics: Mapping[str, Any], demands: Sequence[Demanded]) -> dict[str, Any] | None:
    """The demanded fidelity; a demand whose metric was not measured does not hold."""
    demand: Demanded | None = cell.fidelity
    if demand is None and cell.speed_baseline is not None:
        demand = next((one for one in demands if metrics.get(one.metric) is not None), demands[-1])
    if demand is None or (cell.speed_baseline is None and demand.metric not in metrics):
        return None
    return {"metric": demand.metric, "is": demand.is_, "bound": demand.bound}


def _over_fits(name: str, values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    return max(known) if name in HIGHEST else median(known)
