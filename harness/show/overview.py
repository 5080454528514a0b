"""Every method on every task at a glance: how much faster, and at what loss of quality."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness.contracts.rows import Row
from harness.contracts.tasks import SCALES
from harness.plan.registry import Registry
from harness.show.report.layout import SPEEDUP, Layout
from harness.show.report.selection import interval_of, value_of
from harness.show.stored import Stored

DECIDED = ("faster", "slower", "no difference shown")
PRECISION = "precision_at_1"
_ALIKE = (PRECISION, "exact_match")  # the share of answers that are the exact method's


@dataclass(frozen=True, slots=True)
class Lost:
    """Quality lost against a baseline. share: of answers that are other ones; of perplexity, what was added to it
    (below 0: better than the baseline). of: `answers` or `perplexity`. against: the baseline, as `Mark.baseline`."""

    share: float
    of: str
    against: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A method on a task, timed against one baseline.

    variant: the method's parameters that its declaration names `variants`, such as `compute=int8`, and, where its
    baseline is the same method, those in which the two differ. baseline: the method with its variant. declared:
    whether it is the exact method that this one declares. label, column: of the row that stands for it. lost: None
    where answers were not compared. published: the paper's speedup; published_lost: its quality, where that is known.
    headline: whether the row is of a headline recipe. others: further rows of the same method, variant, task and
    baseline.
    """

    contract: str
    method: str
    task: str
    baseline: str
    declared: bool
    recipe: str
    scale: str
    label: str
    column: str
    speedup: float
    interval: tuple[float, float] | None
    decision: str
    lost: Lost | None
    published: float | None = None
    published_lost: float | None = None
    others: int = 0
    variant: str = ""
    headline: bool = False

    @property
    def name(self) -> str:
        return f"{self.method} ({self.variant})" if self.variant else self.method

    @property
    def comparable(self) -> bool:
        """Whether speedup and quality lost are against the same baseline."""
        return self.lost is not None and self.lost.against == self.baseline


def marks(stored: Iterable[Stored], registry: Registry) -> list[Mark]:
    """One mark for each method, variant, task and baseline, by contract, method and task.

    Of several rows the one of the largest scale stands for them; of these one whose speed is decided, then one of a
    headline recipe, then one that the paper has, then the first by recipe and the recipe's order. Rows of cells that
    their recipe no longer has are left out.
    """
    found: dict[tuple[str, str, str, str], list[tuple[tuple[int, ...], Mark]]] = {}
    for one in stored:
        layout = one.layout()
        rows = {row["cell"]: row for row in one.newest()}
        for cell in one.cells:
            if cell.name in rows and (mark := _mark(one, rows[cell.name], layout, registry)) is not None:
                undecided, unpublished = mark.decision not in DECIDED, mark.published is None
                rank = -SCALES.index(one.scale), int(undecided), int(not one.recipe.headline), int(unpublished)
                found.setdefault((mark.method, mark.variant, mark.task, mark.baseline), []).append((rank, mark))
    chosen = [replace(min(group, key=lambda pair: pair[0])[1], others=len(group) - 1) for group in found.values()]
    return sorted(chosen, key=lambda mark: (mark.contract, mark.name, mark.task, not mark.declared, mark.baseline))


@dataclass(frozen=True, slots=True)
class Panel:
    """Marks that can be drawn together: one task, timed against one baseline, answers compared with one method's."""

    task: str
    baseline: str
    against: str
    marks: tuple[Mark, ...]


def panels(marks: Sequence[Mark]) -> dict[str, Panel]:
    """Contract -> the task, baseline and reference of answers that most methods and variants share, at the largest
    scale that any mark has; of equals the one whose baseline is declared and is the reference too, then the one with
    more rows of headline recipes, then the first.

    The reference itself is among the marks, with nothing lost.
    """
    largest = max((SCALES.index(mark.scale) for mark in marks if mark.lost is not None), default=0)
    at_scale = [mark for mark in marks if SCALES.index(mark.scale) == largest]
    groups: dict[tuple[str, str, str, str], list[Mark]] = {}
    for mark in at_scale:
        if mark.lost is not None:
            groups.setdefault((mark.contract, mark.task, mark.baseline, mark.lost.against), []).append(mark)
    found: dict[str, Panel] = {}
    for (contract, task, baseline, against), group in groups.items():
        drawn = [mark.name for mark in group]
        group += [
            replace(mark, lost=Lost(0.0, group[0].lost.of, against))  # type: ignore[union-attr]  # none lacks it
            for mark in at_scale
            if (mark.task, mark.baseline, mark.name) == (task, baseline, against) and mark.name not in drawn
        ]
        panel = Panel(task, baseline, against, tuple(group))
        if contract not in found or _rank(panel) > _rank(found[contract]):
            found[contract] = panel
    return {contract: found[contract] for contract in sorted(found)}


def _rank(panel: Panel) -> tuple[int, int, int]:
    own = all(mark.declared and mark.comparable for mark in panel.marks)
    return len(panel.marks), int(own), sum(mark.headline for mark in panel.marks)


def lost(row: Row, registry: Registry) -> Lost | None:
    """How far a row's answers are from those of its fidelity baseline."""
    baseline = row["fidelity_baseline"]
    if baseline is None:
        return None
    against = _baseline(baseline, registry)
    for name in _ALIKE:
        if (value := value_of(row, name)) is not None:
            return Lost(1 - value, "answers", against)
    difference, perplexity = value_of(row, "perplexity_difference"), value_of(row, "perplexity")
    if difference is None or perplexity is None or perplexity <= difference:
        return None
    return Lost(difference / (perplexity - difference), "perplexity", against)


def _baseline(baseline: Mapping[str, Any], registry: Registry) -> str:
    """The name of `Mark.baseline`."""
    method, params = baseline["method"], baseline["params"]
    shown = _parameters(_variants(method, registry), params)
    return f"{method} ({shown})" if shown else str(method)


def _variant(row: Row, baseline: Mapping[str, Any], registry: Registry) -> str:
    """`Mark.variant` of a row that was timed against this baseline."""
    own, other = row["params"]["method"], baseline["params"] if baseline["method"] == row["method"] else {}
    differing = [name for name in own if name in other and own[name] != other[name]]
    return _parameters([*dict.fromkeys((*_variants(row["method"], registry), *differing))], own)


def _variants(method: str, registry: Registry) -> Sequence[str]:
    return registry.entry("method", method).variants if method in registry.names("method") else ()


def _parameters(names: Sequence[str], params: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={params[name]}" for name in names if name in params)


def pareto(marks: Sequence[Mark]) -> list[Mark]:
    """Of the marks that lost is known of, those that no other one beats in both: from the least lost to the fastest."""
    front: list[Mark] = []
    known = [(mark.lost.share, -mark.speedup, mark) for mark in marks if mark.lost is not None]
    for _, _, mark in sorted(known, key=lambda one: one[:2]):
        if not front or mark.speedup > front[-1].speedup:
            front.append(mark)
    return front


def _mark(one: Stored, row: Row, layout: Layout, registry: Registry) -> Mark | None:
    speedup, baseline = value_of(row, SPEEDUP), row["speed_baseline"]
    if row["status"] != "ok" or speedup is None or baseline is None or row["method"] not in registry.names("method"):
        return None
    entry, known = registry.entry("method", row["method"]), lost(row, registry)
    published, precision = (layout.printed.get((row["cell"], name)) for name in (SPEEDUP, PRECISION))
    exact = known is not None and known.share == 0  # a lossless method loses nothing in the paper either
    return Mark(
        contract=entry.contract, method=row["method"], task=row["task"], baseline=_baseline(baseline, registry),
        declared=baseline["method"] == entry.baseline, recipe=one.recipe.name, scale=one.scale, label=row["row"],
        column=row["column"], speedup=speedup, interval=interval_of(row, SPEEDUP),
        decision=(row["timing"] or {}).get("decision") or "not decided", lost=known,
        published=published.value if published else None,
        published_lost=1 - precision.value if precision else 0.0 if exact else None,
        variant=_variant(row, baseline, registry), headline=one.recipe.headline,
    )  # fmt: skip
