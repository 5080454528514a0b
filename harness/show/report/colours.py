"""One colour for each method, the same in every figure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from harness.plan.registry import Registry

PALETTE = (
    "#1f77b4", "#d62728", "#2ca02c", "#ff7f0e", "#9467bd", "#8c564b", "#e377c2", "#17becf",
    "#bcbd22", "#0b4f79", "#8b1a1a", "#1b641b", "#b35900", "#5c3b80",
)  # fmt: skip
OTHER = "#7f7f7f"  # of what the registry does not know, and of methods beyond the palette


class _OfMethod(Protocol):
    @property
    def method(self) -> str: ...


def colours(marks: Iterable[_OfMethod], registry: Registry | None = None) -> Mapping[str, str]:
    """Method -> colour: its place among the methods of its contract says which."""
    known = registry or Registry()
    by_contract: dict[str, list[str]] = {}
    for name in known.names("method"):
        by_contract.setdefault(known.entry("method", name).contract, []).append(name)
    places = {name: place for names in by_contract.values() for place, name in enumerate(names)}
    return {
        mark.method: PALETTE[places[mark.method]] if places.get(mark.method, len(PALETTE)) < len(PALETTE) else OTHER
        for mark in marks
    }
