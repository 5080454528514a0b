"""Numbers as people read them."""

from __future__ import annotations

import math

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
    """`85.31 [84.10, 86.52]`: as many decimals as three digits of the interval's width need, two at most beyond that of
    the value's fourth digit."""
    if value is None or interval is None or not all(map(math.isfinite, (value, *interval))):
        return number(value)
    low, high = interval
    if low == value == high:  # a count, or the comparison of a thing with itself
        return number(value)
    width = high - low
    size = max(abs(value), abs(low), abs(high), 1e-12)
    most = max(0, 5 - math.floor(math.log10(size)))
    decimals = most if width <= 0 else min(most, max(0, 2 - math.floor(math.log10(width))))
    return f"{value:,.{decimals}f} [{low:,.{decimals}f}, {high:,.{decimals}f}]"


def duration(seconds: float | None) -> str:
    """`12.3 ms`, `4.56 s`, `3 min 20 s`, `2 h 05 min`."""
    if seconds is None or not math.isfinite(seconds):
        return NOTHING
    if seconds >= 7200:
        return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60):02d} min"
    if seconds >= 120:
        return f"{int(seconds // 60)} min {int(seconds % 60):02d} s"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size or unit == "µs":
            return f"{number(seconds / size, 3)} {unit}"
    return NOTHING
