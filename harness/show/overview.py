"""Every method on every task at a glance: how much faster, and at what loss of quality."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from harness.contracts.rows import Row
from harness.contracts.tasks import SCALES
from harness.plan.registry import Registry
from harness.show.report.layout import SPEEDUP
from harness.show.report.selection import interval_of, value_of
from harness.show.stored import Stored

DECIDED = ("faster", "slower", "no difference shown")
_ALIKE = ("precision_at_1", "exact_match")  # the share of answers that are the exact method's


@dataclass(frozen=True, slots=True)
class Mark:
    """A method on a task against one baseline.

    label, column: of the row that stands for it. lost: share of answers that are not the exact method's, or of
    perplexity gained over the baseline's (below 0: better than it); None where answers were not compared. published:
    the paper's speedup. others: further rows of the same method, task and baseline.
    """

    contract: str
    method: str
    task: str
    baseline: str
    recipe: str
    scale: str
    label: str
    column: str
    speedup: float
    interval: tuple[float, float] | None
    decision: str
    lost: float | None
    published: float | None
    others: int = 0


def marks(stored: Iterable[Stored], registry: Registry) -> list[Mark]:
    """One mark for each method, task and baseline, by contract, method and task.

    Of several rows the one of the largest scale stands for the method; of these one whose speed is decided, then one of
    a headline recipe; then the first in its recipe's order, so that no row is chosen for its number.
    """
    found: dict[tuple[str, str, str], list[tuple[tuple[int, ...], Mark]]] = {}
    for one in stored:
        layout = one.layout()
        for row in one.newest():
            if (mark := _mark(one, row, registry)) is None:
                continue
            number = layout.printed.get((row["cell"], SPEEDUP))
            mark = replace(mark, published=number.value if number else None)
            rank = -SCALES.index(one.scale), int(mark.decision not in DECIDED), int(not one.recipe.headline)
            found.setdefault((mark.method, mark.task, mark.baseline), []).append((rank, mark))
    chosen = [replace(min(group, key=lambda pair: pair[0])[1], others=len(group) - 1) for group in found.values()]
    return sorted(chosen, key=lambda mark: (mark.contract, mark.method, mark.task, mark.baseline))


def lost(row: Row) -> float | None:
    """How far a row's answers are from those of the exact method: `Mark.lost`."""
    for name in _ALIKE:
        if (value := value_of(row, name)) is not None:
            return 1 - value
    difference, perplexity = value_of(row, "perplexity_difference"), value_of(row, "perplexity")
    if difference is None or perplexity is None or perplexity <= difference:
        return None
    return difference / (perplexity - difference)


def pareto(marks: Sequence[Mark]) -> list[Mark]:
    """Of the marks that lost is known of, those that no other one beats in both: from the least lost to the fastest."""
    front: list[Mark] = []
    for mark in sorted(marks, key=lambda m: (m.lost if m.lost is not None else float("inf"), -m.speedup)):
        if mark.lost is not None and (not front or mark.speedup > front[-1].speedup):
            front.append(mark)
    return front


def _mark(one: Stored, row: Row, registry: Registry) -> Mark | None:
    speedup, baseline = value_of(row, SPEEDUP), row["speed_baseline"]
    if row["status"] != "ok" or speedup is None or baseline is None or row["method"] not in registry.names("method"):
        return None
    return Mark(
        contract=registry.entry("method", row["method"]).contract, method=row["method"], task=row["task"],
        baseline=baseline["method"], recipe=one.recipe.name, scale=one.scale, label=row["row"], column=row["column"],
        speedup=speedup, interval=interval_of(row, SPEEDUP),
        decision=(row["timing"] or {}).get("decision") or "not decided", lost=lost(row), published=None,
    )  # fmt: skip
