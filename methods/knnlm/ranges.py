"""Ranges of numeric parameters, checked before anything is built."""

from __future__ import annotations

from math import inf, isfinite

from harness.errors import RequestError


def within(name: str, value: float, least: float, most: float = inf) -> None:
    """Raises `RequestError` where a parameter's value is not finite or not within least and most, both included."""
    if not isfinite(value):
        raise RequestError(f"{name}={value} is not a finite number")
    if value < least:
        raise RequestError(f"{name}={value} is not at least {least}")
    if value > most:
        raise RequestError(f"{name}={value} is not at most {most}")
