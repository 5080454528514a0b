"""Metrics that are ratios of times: one value a process, so that their interval covers the machine and the items as
that of the speedup does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Ratio:
    """One sum of a process's numbers over another, each given as weights by name; a name that is absent counts 0.

    Names, each of all pairs of a process: `baseline`, `method`: seconds of that side's calls. `ROLE.PHASE`: seconds of
    a phase, as in `speed_baseline.retrieve`. `items`: how many were timed. Others: the `sums` of a timed analysis.
    equal: the ratio where both sides take equally long; None where it does not compare them.
    """

    of: Mapping[str, float]
    per: Mapping[str, float]
    equal: float | None = None


def value(ratio: Mapping[str, Any], process: Mapping[str, Any]) -> float | None:
    """A ratio, as a row stores it, of one stored process; None where nothing of it was measured, or its `per` is 0."""
    numbers = _numbers(process)
    whole = sum(weight * numbers.get(name, 0.0) for name, weight in ratio["per"].items())
    if not whole or not any(name in numbers for name in ratio["of"]):
        return None
    return float(sum(weight * numbers.get(name, 0.0) for name, weight in ratio["of"].items()) / whole)


def _numbers(process: Mapping[str, Any]) -> dict[str, float]:
    """Everything that ratios may name, of one process."""
    pairs = process["pairs"]
    numbers: dict[str, float] = {**(process.get("sums") or {}), "items": sum(pair["count"] for pair in pairs)}
    for side in ("baseline", "method"):
        if all(pair[f"{side}_ns"] is not None for pair in pairs):
            numbers[side] = sum(sum(pair[f"{side}_ns"]) for pair in pairs) / 1e9
    for role, record in (process.get("phases") or {}).items():  # a phase's seconds are stored as means of a pass
        numbers |= {f"{role}.{phase}": s * len(pairs) for phase, s in (record.get("seconds") or {}).items()}
    return numbers
