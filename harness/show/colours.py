"""One colour for each method, the same in every figure of a version: by its place among the methods of its contract,
those of plug-ins after the bench's own. One colour and mark for each decision, which the colour-blind tell apart."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from harness.decision import EQUAL, FASTER, SLOWER, UNDECIDED
from harness.groups import grouped
from harness.plan.registry import Registry

PALETTE = (
    "#1f77b4", "#d62728", "#2ca02c", "#ff7f0e", "#9467bd", "#8c564b", "#e377c2", "#17becf",
    "#bcbd22", "#0b4f79", "#8b1a1a", "#1b641b", "#b35900", "#5c3b80", "#a0458c", "#7f7f7f",
)  # fmt: skip

DECISIONS = {FASTER: ("#0072b2", "o"), SLOWER: ("#d55e00", "s"), UNDECIDED: ("#4d5560", "D")}
NO_CLAIM = "#7d8590", "^"


def of_decision(decision: str) -> tuple[str, str]:
    """Colour and mark; what is equal has those of no difference, and what is not decided has others."""
    return DECISIONS.get(UNDECIDED if decision.startswith(EQUAL) else decision, NO_CLAIM)


@cache
def _own(packages: tuple[str, ...]) -> dict[str, str]:
    """Each method's own colour."""
    known = Registry()
    entries = [known.entry("method", name) for name in known.names("method")]
    entries.sort(key=lambda entry: (not entry.target.startswith("methods."), entry.name))
    by_contract = grouped((entry.contract, entry.name) for entry in entries)
    return {name: PALETTE[i % len(PALETTE)] for names in by_contract.values() for i, name in enumerate(names)}


def assigned(methods: Sequence[str]) -> list[str]:
    """Colours of a figure's series, given the method of each: the first of a method has the method's own, a further one
    a colour that no method in the figure has. At most as many as the palette has."""
    own = _own(tuple(Registry().packages))
    taken = {own[method] for method in methods if method in own}
    free = [shade for shade in PALETTE if shade not in taken]
    found: list[str] = []
    for method in methods:
        shade = own.get(method)
        found.append(free.pop(0) if shade is None or shade in found else shade)
    return found
