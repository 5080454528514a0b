"""Numbers as people read them."""

from __future__ import annotations

import math
from collections.abc import Sequence

NOTHING = "–"


def number(value: float | None, digits: int = 4) -> str:
    """`digits` significant digits, fewer where fewer are exact; whole numbers in full with thousands separators."""
    if value is None or not math.isfinite(value):
        return NOTHING
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    if not 1e-4 <= abs(value) < 1e9:
        return f"{value:.{digits - 1}e}"
    text = f"{value:,.{max(0, digits - 1 - math.floor(math.log10(abs(value))))}f}"
    return text.rstrip("0") if "." in text and float(text.replace(",", "")) == value else text


def with_interval(value: float | None, interval: tuple[float, float] | None) -> str:
    """`85.3 [84.1, 86.5]`: the decimals of three digits of the value, within those of two and of three digits of the
    interval's width, and within those of six digits of the largest number. A width that is lost in them is left out."""
    if value is None or interval is None or not all(map(math.isfinite, (value, *interval))):
        return number(value)
    low, high = interval
    width = high - low
    if low == value == high:  # a count, or the comparison of a thing with itself
        return number(value)
    size = max(abs(value), abs(low), abs(high), 1e-12)
    if size >= 1e9:
        return with_interval(value / 1e9, (low / 1e9, high / 1e9)) + " billion"
    most = max(0, 5 - _power(size))
    decimals = most if width <= 0 else min(most, max(0, 1 - _power(width), min(2 - _power(width), 2 - _power(value))))
    text, *ends = (f"{one:z,.{decimals}f}" for one in (value, low, high))
    return text if {*ends} == {text} else f"{text} [{', '.join(ends)}]"


def _power(value: float) -> int:
    return math.floor(math.log10(max(abs(value), 1e-12)))


def timespan(seconds: float | None, interval: tuple[float, float] | None) -> str:
    """`12.3 [11.9, 12.8] ms`; without an interval as `duration`."""
    if seconds is None or interval is None or not all(map(math.isfinite, (seconds, *interval))):
        return duration(seconds)
    unit, size = _unit(seconds)
    return f"{with_interval(seconds / size, (interval[0] / size, interval[1] / size))} {unit}"


def duration(seconds: float | None) -> str:
    """`12.3 ms`, `4.56 s`, `3 min 20 s`, `2 h 05 min`."""
    if seconds is None or not math.isfinite(seconds):
        return NOTHING
    if seconds >= 7200:
        return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60):02d} min"
    if seconds >= 120:
        return f"{int(seconds // 60)} min {int(seconds % 60):02d} s"
    unit, size = _unit(seconds)
    return f"{number(seconds / size, 3)} {unit}"


def _unit(seconds: float) -> tuple[str, float]:
    """The largest of s, ms and µs that is at most so long."""
    return next((found for found in (("s", 1.0), ("ms", 1e-3)) if seconds >= found[1]), ("µs", 1e-6))


def aligned(table: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table, its columns as wide as their longest cell."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in table]
