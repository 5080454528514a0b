"""Curves: measured points with their intervals, the paper's points next to them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from harness.contracts.metrics import Metric
from harness.plan import schema
from harness.rows import metric_among
from harness.show.colours import assigned
from harness.show.published import comparable, lookup
from harness.show.stored import Stored, place_of

MARKERS = "os^Dv<>P"
SERIES = 8  # curves drawn; the table has all
DECADES = 50  # an axis over so large a ratio is logarithmic; that of a speedup over a fifth of it
# how far answers are from those of the row's fidelity baseline
DISTANCES = ("perplexity_difference", "improvement_pct", "perplexity_ratio", "bleu_difference")
_SAYS = re.compile(r"(?:^|, | \()(\w+)=(-?\d+(?:\.\d+)?)(?:\)|(?=,|$))")  # `GAD, k=5` and `GAD (k=5)` say 5 of k


@dataclass(frozen=True)
class Names:
    """How a row's labels name its curve: without what they say of x.

    said: names that stand for x in labels (`k` in `GAD, k=5` over block sizes); common: parts of column labels that all
    curves share.
    """

    said: frozenset[str]
    common: frozenset[str]

    @classmethod
    def of(cls, x: str, labels: Sequence[tuple[str, str, float]]) -> Names:
        """labels: row, column and x of each measured row."""
        stated = [({name: float(value) for name, value in _SAYS.findall(row)}, at) for row, _, at in labels]
        several = len({at for _, _, at in labels}) > 1
        names = {name for found, _ in stated for name in found}
        said = {name for name in names if several and all(found.get(name) == at for found, at in stated)}
        every = cls(frozenset({*said, x.casefold()}), frozenset())
        columns = [parts for _, column, _ in labels if (parts := every._parts(column)) is not None]
        return cls(every.said, frozenset(set.intersection(*map(set, columns)) if columns else ()))

    def curve(self, row: str, column: str) -> str:
        """`GAD, over beam search` of the row `GAD, k=5` and the column `over beam search / batch=8`. A column that says
        nothing of x names a point on the curve and not the curve."""
        row = _SAYS.sub(lambda found: "" if found[1].casefold() in self.said else found[0], row)
        return ", ".join([row, *(part for part in self._parts(column) or () if part not in self.common)])

    def at(self, row: str, column: str) -> float | None:
        """The x that a row's labels say."""
        for label in (*column.split(" / "), row):
            for name, value in _SAYS.findall(label):
                if name.casefold() in self.said:
                    return float(value)
        return None

    def _parts(self, column: str) -> list[str] | None:
        """The column's parts that say nothing of x; None where no part does."""
        parts = column.split(" / ")
        rest = [part for part in parts if part.partition("=")[0].strip().casefold() not in self.said]
        return None if len(rest) == len(parts) else rest


def figure(one: Stored, wanted: schema.Figure, numbers: pd.DataFrame) -> Figure | None:
    """The figure of a recipe whose `figure` names x and y; None when no row has both. numbers: the recipe's part of the
    frame."""
    numbers = numbers[(numbers.status == "ok") & (numbers.apart == "")]
    names = _names(numbers, wanted.x)
    shown = [y for y in (wanted.y, wanted.beside) if y]
    panels = {y: points(numbers, wanted.x, y, names) for y in shown}
    panels = {y: found for y, found in panels.items() if y == wanted.y or not found.empty}
    drawn = [found for found in panels.values() if not found.empty]
    if not drawn:
        return None
    measured = pd.concat(drawn).drop_duplicates("curve")
    axes = {name: metric_among(one.rows, name) for name in (wanted.x, *shown)}
    named = dict(zip(measured.cell, measured.curve, strict=True))
    papers = _papers(one, axes[wanted.x], axes[wanted.y], numbers, names, named)
    beside = dict(zip(papers.curve, papers.measured, strict=True))  # a published curve -> the measured one next to it
    every = [*measured.curve, *dict.fromkeys(name for name, ours in beside.items() if name == ours + PUBLISHED)]
    methods = dict(zip(measured.curve, measured.method, strict=True))
    shortest = sorted(every[:SERIES], key=len)  # bears its method's own colour: variants have longer names
    colours = dict(zip(shortest, assigned([methods.get(name, "") for name in shortest]), strict=True))
    style = {name: (colours[name], MARKERS[place % len(MARKERS)]) for place, name in enumerate(every[:SERIES])}
    papers = papers[papers.measured.isin(style) | papers.curve.isin(style)]
    same_axes = comparable(axes[wanted.y], one.scale in one.recipe.data_of_paper)
    canvas, places = _canvas(len(panels), len(papers) > 0 and not same_axes, one, _note(panels, every, numbers, axes))
    for place, (y, found) in zip(places, panels.items(), strict=False):
        for name, value in levels(numbers, wanted.x, y).items():
            place.axhline(value, color="0.5", linestyle="--", linewidth=1, label=name)
        for name, curve in found.groupby("curve", sort=False):
            if name in style:
                _measured(place, str(name), curve, *style[str(name)])
        place.set(ylabel=axes[y].axis, title=f"measured, scale {one.scale}")
        _scale(place.yaxis, found.y, axes[y])
        if y == "speedup" and place.get_ylim()[0] < 1 < place.get_ylim()[1]:
            place.axhline(1, color="0.7", linewidth=1, zorder=0)  # as fast as the baseline
    theirs = places[0]
    if len(papers) and not same_axes:
        theirs = places[-1]
        theirs.set(ylabel=axes[wanted.y].axis, title="published (other data: compare shapes, not values)")
    elif len(papers):
        theirs.set_title(f"measured, scale {one.scale}; hollow: published")
    for name, curve in papers.groupby("curve", sort=False):
        colour, marker = style.get(str(name)) or style[curve.measured.iloc[0]]
        plain, ours = str(name).removesuffix(PUBLISHED), curve.measured.iloc[0]
        label = plain if not same_axes else None if name == ours else plain + PUBLISHED
        curve = curve.sort_values(["x", "y"])
        theirs.plot(curve.x, curve.y, marker + "--", color=colour, fillstyle="none", markersize=8, label=label)
    for place in places:
        place.set_xlabel(axes[wanted.x].axis)
        place.title.set_fontsize("medium")
        place.grid(alpha=0.3)
        _scale(place.xaxis, pd.concat([*(found.x for found in panels.values()), papers.x]), axes[wanted.x])
        if place.get_legend_handles_labels()[0]:
            place.legend(fontsize="x-small", loc="best", framealpha=0.6)
    return canvas


PUBLISHED = ", published"


def points(numbers: pd.DataFrame, x: str, y: str, names: Names | None = None) -> pd.DataFrame:
    """A line for each point, by curve and x: curve, x, y, low, high, method, cell. x and y are metrics, counters or
    parameters. numbers: finished rows. Of a distance, only rows with the reference that most rows have."""
    names = names or _names(numbers, x)
    lines = _cells(numbers).assign(x=_coordinate(numbers, x), y=_coordinate(numbers, y)).dropna(subset=["x", "y"])
    if y in DISTANCES and len(lines):
        lines = lines[lines.against == lines.against.value_counts(sort=True).index[0]]
    ends = numbers[numbers.metric == y].set_index("cell")[["low", "high"]]
    lines = lines.join(ends).assign(curve=[names.curve(r.row, r.column) for r in lines.itertuples()])
    if "speedup" in (x, y):  # over two baselines they are two curves
        several = lines.groupby("curve").baseline.transform("nunique") > 1
        lines.loc[several, "curve"] += ", over " + lines.baseline[several]
    order = lines.assign(place=lines.curve.map({name: i for i, name in enumerate(dict.fromkeys(lines.curve))}))
    return order.sort_values(["place", "x", "y"], kind="stable").reset_index()


def levels(numbers: pd.DataFrame, x: str, y: str) -> dict[str, float]:
    """Cell -> y of the rows to which x does not apply (the LM alone has no FoSS), drawn as level lines. None of a
    counter, which is of other work, or of a distance or a speedup, which is from another baseline."""
    if y in (*DISTANCES, "speedup") or (numbers[numbers.metric == y].kind == "counter").any():
        return {}
    lines = _cells(numbers).assign(x=_coordinate(numbers, x), y=_coordinate(numbers, y))
    return dict(lines[lines.x.isna()].y.dropna())


def _cells(numbers: pd.DataFrame) -> pd.DataFrame:
    """A line for each cell."""
    cells = numbers.drop_duplicates("cell").set_index("cell")
    return cells[["row", "column", "method", "params", "baseline"]].assign(against=cells.reference.fillna(""))


def _coordinate(numbers: pd.DataFrame, name: str) -> pd.Series[float]:
    """Cell -> a metric, else a parameter of method or task that is a number."""
    found = numbers[numbers.metric == name].set_index("cell").value
    cells = numbers.drop_duplicates("cell").set_index("cell").params
    asked = cells.map(lambda params: next((p[name] for p in (params["method"], params["task"]) if name in p), None))
    asked = asked[[isinstance(value, int | float) and not isinstance(value, bool) for value in asked]]
    return found.combine_first(asked.astype(float)) if len(asked) else found


def _names(numbers: pd.DataFrame, x: str) -> Names:
    lines = _cells(numbers).assign(x=_coordinate(numbers, x)).dropna(subset=["x"])
    return Names.of(x, [(line.row, line.column, line.x) for line in lines.itertuples()])


def _papers(
    one: Stored, x: Metric, y: Metric, numbers: pd.DataFrame, names: Names, named: Mapping[str, str]
) -> pd.DataFrame:
    """A line for each published point: curve, x, y, measured (the measured curve next to it, else its own name).
    named: cell -> its curve, of the cells that are drawn."""
    paired = {
        tuple(row.published or ()): named.get(row.cell) or names.curve(row.row, row.column)
        for row in reversed([row for row in one.rows if row.status == "ok" and row.published])
        if row.cell in set(numbers.cell) and row.value(y.name) is not None
    }
    printed = [n for n in one.numbers if n.as_measured(y) is not None]
    theirs = Names.of(x.name, [(n.row, n.column, 0.0) for n in printed if (n.row, n.column) in paired])
    theirs = Names(names.said, theirs.common)
    beside = {theirs.curve(*labels): ours for labels, ours in reversed(paired.items())}
    lines = []
    for n in printed:
        at = theirs.at(n.row, n.column)
        if at is None and (found := lookup(one.numbers, n.row, n.column, x)) is not None:
            at = found.as_measured(x)
        if at is not None:
            name = theirs.curve(n.row, n.column)
            curve = name if name in beside else f"{name}{PUBLISHED}"
            lines.append((curve, at, n.as_measured(y), beside.get(name, name)))
    return pd.DataFrame(lines, columns=["curve", "x", "y", "measured"])


def _note(panels: dict[str, pd.DataFrame], every: Sequence[str], numbers: pd.DataFrame, axes: dict[str, Metric]) -> str:
    bounded = any(found.low.notna().any() for found in panels.values())
    parts = ["bars: 95% intervals of the vertical axis"] * bounded
    parts += [f"in the table alone: {', '.join(every[SERIES:])}"] * (len(every) > SERIES)
    distances = {y: found for y, found in panels.items() if y in DISTANCES and len(found)}
    parts += [f"{axes[y].label}: from {found.against.iloc[-1]}" for y, found in distances.items()]
    return "; ".join(parts)


def _canvas(panels: int, apart: bool, one: Stored, note: str) -> tuple[Figure, list[Any]]:
    """A figure with panels side by side; the paper's points in one of their own where they are of other data."""
    ratios = [3] * panels + [2] * apart
    drawn = Figure(figsize=(8.5 + 5.0 * (len(ratios) - 1), 4.8), layout="constrained")
    places = drawn.subplots(1, len(ratios), squeeze=False, sharex=True, width_ratios=ratios)[0]
    width = 120 if len(ratios) > 1 else 90
    drawn.suptitle(textwrap.fill(f"{one.recipe.name}: {one.recipe.title}", width), fontsize="medium")
    note = "; ".join(filter(None, (note, place_of(one.rows))))
    drawn.supxlabel(textwrap.fill(note, width + 30), fontsize="x-small", color="0.4")
    return drawn, list(places)


def _measured(place: Any, name: str, curve: pd.DataFrame, colour: str, marker: str) -> None:
    """Filled points with their intervals, joined."""
    below = (curve.y - curve.low).clip(lower=0).fillna(0)
    above = (curve.high - curve.y).clip(lower=0).fillna(0)
    place.errorbar(
        curve.x, curve.y, yerr=[below, above], fmt=marker + "-", color=colour, capsize=3, markersize=5, label=name
    )


def _scale(axis: Any, values: pd.Series[float], metric: Metric) -> None:
    """Logarithmic where the values go over decades; sooner where ratios count, as of speedups."""
    decades = DECADES / 5 if metric.kind == "speed" else DECADES
    if not len(values) or values.min() <= 0 or values.max() / values.min() < decades:
        if len(values) and values.abs().max() >= 1e6:  # bytes and the like
            axis.set_major_formatter(EngFormatter(sep=""))
        return
    getattr(axis.axes, f"set_{axis.axis_name}scale")("log")
    ticks = sorted(set(values))  # those that a sweep gives, where there is room for them
    few = axis.axis_name == "x" and len(ticks) <= SERIES and all(b >= 1.5 * a for a, b in pairwise(ticks))
    ticks = ticks if few else [t for t in _ROUND if values.min() <= 2 * t <= 4 * values.max()]
    axis.set_ticks(ticks, [_short(tick) for tick in ticks], minor=False)
    axis.set_ticks([], minor=True)


def _short(value: float) -> str:
    """`40k`, `2.5M`; numbers below 10,000 as they are."""
    if value >= 1e6:
        return f"{value / 1e6:.3g}M"
    return f"{value / 1e3:.3g}k" if value >= 1e4 else f"{value:.4g}"


_ROUND = [digit * 10.0**power for power in range(-4, 10) for digit in (1, 2, 5)]
