"""Points of a curve between its measured rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from harness.rows import Row
from harness.show.formats import number


def point(rows: Sequence[Row], name: str, at: float) -> Row:
    """The row that a curve would have where a metric has this value. Raises `LookupError` outside the rows' reach."""
    known = sorted(((value, row) for row in rows if (value := row.value(name)) is not None), key=lambda one: one[0])
    for (low, left), (high, right) in pairwise(known):
        if low <= at <= high:
            return _between(left, right, (at - low) / (high - low) if high > low else 0.0)
    reach = f"reach from {number(known[0][0])} to {number(known[-1][0])}" if known else "have none"
    raise LookupError(f"no point at {name} = {number(at)}: the rows {reach}")


def _between(left: Row, right: Row, share: float) -> Row:
    """The row at a share of the way from one to another: every metric is on the line between the two, and so is each
    end of its interval, which is then no narrower than that of the interpolated value. It has no times."""
    metrics = {}
    intervals = {}
    for name in left.metrics:
        one, other = left.value(name), right.value(name)
        if one is None or other is None:
            continue
        metrics[name] = (1 - share) * one + share * other
        ends, others = left.interval_of(name), right.interval_of(name)
        if ends is not None and others is not None:
            intervals[name] = [(1 - share) * a + share * b for a, b in zip(ends, others, strict=True)]
    return replace(
        left, row=f"{left.cell} to {right.cell}", column="", metrics=metrics, intervals=intervals, counters={},
        processes=(), ratios={},
        fidelity_baseline=left.fidelity_baseline if left.fidelity_baseline == right.fidelity_baseline else None,
    )  # fmt: skip
