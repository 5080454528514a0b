"""Metrics that are ratios of times: of two totals over processes, so that their interval covers machine and items like
that of the speedup."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio of two weighted sums of a process's numbers: `of` over `per`, weights by name. An absent name counts 0.

    Names, each summed over all pairs of a process:

    - `baseline`, `method`: seconds of that side's calls
    - `ROLE.PHASE`: seconds of a phase, such as `speed_baseline.retrieve`
    - `ROLE.COUNTER`: a total of the timed answers' counters, such as `method.searches`
    - `items`: number of timed items
    - others: the `sums` of a timed analysis
    - a product or quotient of these, such as `baseline*method.searches/method.tokens`

    equal: the ratio if both sides take equally long; None if it does not compare them.
    """

    of: Mapping[str, float]
    per: Mapping[str, float]
    equal: float | None = None

    @property
    def names(self) -> set[str]:
        """The names that it uses."""
        return {name for term in (*self.of, *self.per) for name in _PRODUCT.split(term)[::2]}


_PRODUCT = re.compile("([*/])")


def parts(ratio: Mapping[str, Any], process: Mapping[str, Any]) -> tuple[float, float] | None:
    """The two sums of a ratio, in the form of rows, for one stored process. None if nothing of it was measured or `per`
    is 0."""
    numbers = _numbers(process)
    whole = sum(weight * (_term(name, numbers) or 0.0) for name, weight in ratio["per"].items())
    terms = [(weight, _term(name, numbers)) for name, weight in ratio["of"].items()]
    if not whole or all(term is None for _, term in terms):
        return None
    return float(sum(weight * (term or 0.0) for weight, term in terms)), float(whole)


def _term(term: str, numbers: Mapping[str, float]) -> float | None:
    """A name's number, or a product of several; None if one is absent or a divisor is 0."""
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
    """All numbers of one process that ratios may name."""
    pairs = process["pairs"]
    numbers: dict[str, float] = {**(process.get("sums") or {}), "items": sum(pair["count"] for pair in pairs)}
    for side in ("baseline", "method"):
        if all(pair[f"{side}_ns"] is not None for pair in pairs):
            numbers[side] = sum(sum(pair[f"{side}_ns"]) for pair in pairs) / 1e9
    for role, record in (process.get("phases") or {}).items():  # a phase's seconds are stored as means per pass
        numbers |= {f"{role}.{phase}": s * len(pairs) for phase, s in (record.get("seconds") or {}).items()}
    return numbers
