"""Metrics that are ratios of times: one value a process, so that their interval covers the machine and the items as
that of the speedup does."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Ratio:
    """One sum of a process's numbers over another, each given as weights by name; a name that is absent counts 0.

    Names, each of all pairs of a process: `baseline`, `method`: seconds of that side's calls. `ROLE.PHASE`: seconds of
    a phase, as in `speed_baseline.retrieve`. `ROLE.COUNTER`: a total of the timed answers' counters, as in
    `method.searches`. `items`: how many were timed. Others: the `sums` of a timed analysis. A name may be a product of
    these, as in `baseline*method.searches/method.tokens`.
    equal: the ratio where both sides take equally long; None where it does not compare them.
    """

    of: Mapping[str, float]
    per: Mapping[str, float]
    equal: float | None = None

    @property
    def names(self) -> set[str]:
        """The names that it goes by."""
        return {name for term in (*self.of, *self.per) for name in _PRODUCT.split(term)[::2]}


_PRODUCT = re.compile("([*/])")


def value(ratio: Mapping[str, Any], process: Mapping[str, Any]) -> float | None:
    """A ratio, as a row stores it, of one stored process; None where nothing of it was measured, or its `per` is 0."""
    numbers = _numbers(process)
    whole = sum(weight * (_term(name, numbers) or 0.0) for name, weight in ratio["per"].items())
    parts = [(weight, _term(name, numbers)) for name, weight in ratio["of"].items()]
    if not whole or all(part is None for _, part in parts):
        return None
    return float(sum(weight * (part or 0.0) for weight, part in parts) / whole)


def _term(term: str, numbers: Mapping[str, float]) -> float | None:
    """A name's number, or the product of several; None where one is absent or a divisor is 0."""
    found, sign = 1.0, "*"
    for name in _PRODUCT.split(term):
        if name in ("*", "/"):
            sign = name
        elif name not in numbers or (sign == "/" and not numbers[name]):
            return None
        else:
            found = found * numbers[name] if sign == "*" else found / numbers[name]
    return found


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
