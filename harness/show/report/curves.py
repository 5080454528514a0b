"""Curves: measured points with their intervals, the paper's points with them, names at their ends."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.contracts.metrics import Metric
from harness.contracts.rows import Row
from harness.contracts.tasks import Scale
from harness.measure.own_metrics import DISTANCES, among
from harness.plan.cell import Cell
from harness.plan.recipe import Recipe
from harness.show.report import labels
from harness.show.report.colours import assigned
from harness.show.report.context import machine_line
from harness.show.report.published import Published, comparable, places
from harness.show.report.selection import baseline_name, interval_of, value_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKERS = "os^Dv<>P"
SERIES = 8  # curves drawn; the table has all
DECADES = 50  # an axis over so large a ratio is logarithmic; that of a speedup over a fifth of it


@dataclass(frozen=True, slots=True)
class Point:
    """One point; `low` and `high` bound y where an interval is known."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None


Curves = dict[str, list[Point]]  # row label -> points by x


@dataclass(frozen=True, slots=True)
class Names:
    """How curves are named. parts: those of column labels that tell curves apart; given: names that stand for x in row
    labels (`k` in `GAD, k=5` over block sizes)."""

    parts: frozenset[str] = frozenset()
    given: frozenset[str] = frozenset()

    def of(self, row: str, column: str) -> str:
        """The row's label without what it says of x, and the parts of the column's."""
        row = _SAYS.sub(lambda found: "" if found[1] in self.given else found[0], row)
        return ", ".join([row, *(part for part in column.split(" / ") if part in self.parts)])


_SAYS = re.compile(r"(?:, | \()(\w+)=(\d+(?:\.\d+)?)(?:\)|(?=,|$))")  # `GAD, k=5` and `GAD (k=5)` say 5 of k


@dataclass(frozen=True, slots=True)
class Panel:
    """What one panel of a figure shows of the measured rows: the metric of its y axis, curves, level lines."""

    metric: Metric
    curves: Curves
    levels: dict[str, float]


@dataclass(frozen=True, slots=True)
class _Style:
    """Which curves are drawn, and how. beside: a published curve's name -> the measured one whose colour it bears."""

    names: Sequence[str]
    colours: Sequence[str]
    beside: Mapping[str, str]

    def of(self, name: str) -> tuple[str, str] | None:
        """Colour and marker; None for a curve that is not drawn."""
        name = self.beside.get(name, name)
        if name not in self.names:
            return None
        place = self.names.index(name)
        return self.colours[place], MARKERS[place % len(MARKERS)]


def figure(
    recipe: Recipe, scale: Scale, rows: Sequence[Row], published: Published, cells: Sequence[Cell]
) -> Figure | None:
    """The figure of a recipe whose `figure` names x and y; None when no row has both."""
    assert recipe.figure is not None
    x, y, beside = recipe.figure.x, recipe.figure.y, recipe.figure.beside
    names = _names(rows, x)
    curves = measured_curves(_against_one(rows, y), x, y, names)
    second = measured_curves(_against_one(rows, beside), x, beside, names) if beside else {}
    if not curves and not second:
        return None
    printed = {(number.row, number.column) for number in published.numbers}
    paired = {name: labels for name, labels in places(cells).items() if labels in printed}
    theirs = Names(_parts([column for _, column in paired.values()], x), names.given)
    measured: dict[str, str] = {}  # a published curve's name -> that of the first measured one next to it
    for row in rows:
        name = names.of(row["row"], row["column"])
        if name in curves and row["cell"] in paired:
            measured.setdefault(theirs.of(*paired[row["cell"]]), name)
    axes = among(rows, x), among(rows, y)
    same_axes = comparable(axes[1], scale in recipe.data_of_paper)
    papers = published_curves(published, *axes, theirs)
    panels = [Panel(axes[1], curves, levels(rows, x, y))]
    if second:
        panels.append(Panel(among(rows, beside), second, levels(rows, x, beside)))
    methods = {names.of(row["row"], row["column"]): row["method"] for row in reversed(rows)}
    every = list({name: None for panel in panels for name in panel.curves})
    alone = {f"{name}, published": points for name, points in papers.items() if name not in measured}
    papers = {name: points for name, points in papers.items() if name in measured} | alone
    every += list(alone)
    shortest = sorted(every[:SERIES], key=len)  # bears its method's own colour: variants have longer names
    colours = dict(zip(shortest, assigned([methods.get(name, "") for name in shortest]), strict=True))
    style = _Style(every[:SERIES], [colours[name] for name in every[:SERIES]], measured)
    apart = bool(papers) and not same_axes
    said = [line for name in (y, beside) if (line := _distance(rows, name))]
    return _draw(recipe, scale, axes, panels, papers, style, apart, _footnote(panels, every[SERIES:], rows, said))


def _against_one(rows: Sequence[Row], y: str) -> Sequence[Row]:
    """The rows; where y says how far answers are from a baseline's, those with the baseline that most have."""
    if y not in DISTANCES:
        return rows
    having = [row for row in rows if value_of(row, y) is not None]
    against = Counter(repr(row["fidelity_baseline"]) for row in having).most_common(1)
    return [row for row in having if repr(row["fidelity_baseline"]) == against[0][0]]


def _distance(rows: Sequence[Row], y: str) -> str:
    """From which baseline a distance is, in words; empty for any other metric."""
    if y not in DISTANCES or not (drawn := _against_one(rows, y)):
        return ""
    baseline = drawn[-1]["fidelity_baseline"]
    return f"{among(rows, y).label}: from {baseline_name(drawn[-1], baseline)}" if baseline else ""


def _footnote(panels: Sequence[Panel], left_out: Sequence[str], rows: Sequence[Row], said: Sequence[str]) -> str:
    bounded = any(p.low is not None for panel in panels for points in panel.curves.values() for p in points)
    parts = ["bars: 95% intervals"] * bounded + [f"in the table alone: {', '.join(left_out)}"] * bool(left_out)
    return "; ".join([*parts, *said, machine_line(rows)])


def measured_curves(rows: Sequence[Row], x: str, y: str, names: Names | None = None) -> Curves:
    """Points of the finished rows by row label, and by what else than `x=VALUE` their columns differ in. x and y are
    metrics, counters or parameters of method or task. names: where these rows are not all of a figure's."""
    names = names or _names(rows, x)
    curves: Curves = {}
    for row in rows:
        at, value = _coordinate(row, x), _coordinate(row, y)
        if row["status"] == "ok" and at is not None and value is not None:
            low, high = interval_of(row, y) or (None, None)
            curves.setdefault(names.of(row["row"], row["column"]), []).append(Point(at, value, low, high))
    return {name: sorted(points, key=lambda p: (p.x, p.y)) for name, points in curves.items()}


def levels(rows: Sequence[Row], x: str, y: str) -> dict[str, float]:
    """y of the finished rows to which x does not apply (the LM alone has no FoSS), by cell: drawn as level lines. None
    of a counter or of a distance from a baseline."""
    if among(rows, y).kind == "counter" or y in DISTANCES:  # of other work, or from another baseline
        return {}
    found = ((row, _coordinate(row, y)) for row in rows if row["status"] == "ok" and _coordinate(row, x) is None)
    return {row["cell"]: value for row, value in found if value is not None}


def published_curves(published: Published, x: Metric, y: Metric, names: Names) -> Curves:
    """The paper's points by row label and those of the column's parts that tell measured curves apart: numbers of y
    whose column says `x=VALUE`, or whose row says it by a name that stands for x in measured rows, or for which x is
    published too."""
    curves: Curves = {}
    for number in published.numbers:
        value = number.as_measured(y)
        if value is None:
            continue
        at = _in_label(number.column, x.name)
        if at is None:
            at = next((value for name, value in _said(number.row).items() if name in names.given), None)
        if at is None:
            printed_at = published.lookup(number.row, number.column, x)
            at = printed_at.as_measured(x) if printed_at else None
        if at is not None:
            curves.setdefault(names.of(number.row, number.column), []).append(Point(at, value))
    return {name: sorted(points, key=lambda p: (p.x, p.y)) for name, points in curves.items()}


def _parts(columns: Sequence[str], x: str) -> frozenset[str]:
    """Parts in which column labels that say `x=VALUE` (or a range of values) differ but for this."""
    split = [
        {part for part in column.split(" / ") if not _says(part, x)}
        for column in columns
        if any(_says(part, x) for part in column.split(" / "))
    ]
    return frozenset(set[str]().union(*split) - set[str].intersection(*split)) if split else frozenset()


def _names(rows: Sequence[Row], x: str) -> Names:
    found = [(at, _said(row["row"])) for row in rows if (at := _coordinate(row, x)) is not None]
    several = len({at for at, _ in found}) > 1
    given = {name for _, said in found for name in said if several and all(s.get(name) == at for at, s in found)}
    return Names(_parts([row["column"] for row in rows], x), frozenset(given))


def _said(row: str) -> dict[str, float]:
    """`GAD++, k=5, top-3, tau=1` says 5 of k and 1 of tau."""
    return {name: float(value) for name, value in _SAYS.findall(row)}


def _coordinate(row: Row, name: str) -> float | None:
    value = value_of(row, name)
    for side in ("method", "task"):
        if value is None:
            value = row["params"][side].get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _says(part: str, name: str) -> bool:
    label, equals, _ = part.partition("=")
    return bool(equals) and label.strip().casefold() == name.casefold()


def _in_label(column: str, name: str) -> float | None:
    """`WikiText-103 / FoSS=0.5` says 0.5 of `foss`."""
    for part in column.split(" / "):
        label, equals, value = part.partition("=")
        if equals and label.strip().casefold() == name.casefold():
            try:
                return float(value)
            except ValueError:
                return None
    return None


def _draw(
    recipe: Recipe, scale: Scale, axes: tuple[Metric, Metric], ours: Sequence[Panel], papers: Curves, style: _Style,
    apart: bool, footnote: str,
) -> Figure:  # fmt: skip
    """The panels of what was measured, side by side. The paper's curves are in the first one, or in one of their own,
    with values of their own, where they are of other data."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    ratios = [3] * len(ours) + [2] * apart
    figure = Figure(figsize=(8.5 + 5.0 * (len(ratios) - 1), 4.8), layout="constrained")
    FigureCanvasAgg(figure)
    panels: Any = figure.subplots(1, len(ratios), squeeze=False, sharex=True, width_ratios=ratios)[0]
    named: list[list[labels.Label]] = [[] for _ in panels]
    for panel, drawn, names in zip(panels, ours, named, strict=False):
        panel.set_ylabel(drawn.metric.axis)
        hollow = bool(papers) and not apart and panel is panels[0]
        panel.set_title(f"measured, scale {scale}" + "; hollow: published" * hollow)
        names += [_level(panel, name, value) for name, value in drawn.levels.items()]
        names += [_measured(panel, name, points, style) for name, points in drawn.curves.items() if style.of(name)]
        _scale(panel.yaxis, [point.y for points in drawn.curves.values() for point in points], drawn.metric)
        if drawn.metric.name == "speedup" and panel.get_ylim()[0] < 1 < panel.get_ylim()[1]:
            panel.axhline(1, color="0.7", linewidth=1, zorder=0)  # as fast as the baseline
    if apart:
        panels[-1].set_ylabel(axes[1].axis)
        panels[-1].set_title("published (other data: compare shapes, not values)")
    shown = {name: points for name, points in papers.items() if style.of(name)}
    theirs = -1 if apart else 0
    named[theirs] += [_published(panels[theirs], name, points, style, apart) for name, points in shown.items()]
    every = [points for drawn in ours for points in drawn.curves.values()] + list(shown.values())
    for panel in panels:
        panel.set_xlabel(axes[0].axis)
        panel.title.set_fontsize("medium")
        panel.grid(alpha=0.3)
        _scale(panel.xaxis, sorted({point.x for points in every for point in points}), axes[0])
    width = 120 if len(panels) > 1 else 90
    figure.suptitle(textwrap.fill(f"{recipe.name}: {recipe.title}", width), fontsize="medium")
    figure.supxlabel(textwrap.fill(footnote, width + 30), fontsize="x-small", color="0.4")
    figure.draw_without_rendering()  # the names' places depend on the layout
    for panel, names in zip(panels, named, strict=True):
        labels.place(panel, [name for name in names if name.text])
    return figure


def _scale(axis: Any, values: Sequence[float], metric: Metric) -> None:
    """Logarithmic where the values go over decades; sooner where ratios count, as of speedups."""
    decades = DECADES / 5 if metric.kind == "speed" else DECADES
    if not values or min(values) <= 0 or max(values) / min(values) < decades:
        return
    getattr(axis.axes, f"set_{axis.axis_name}scale")("log")
    few = axis.axis_name == "x" and len(set(values)) <= SERIES  # the values that a sweep gives
    ticks = sorted(set(values)) if few else [t for t in _ROUND if t * 2 >= min(values)]
    ticks = [tick for tick in ticks if tick <= 2 * max(values)]
    axis.set_ticks(ticks, [_short(tick) for tick in ticks], minor=False)
    axis.set_ticks([], minor=True)


def _short(value: float) -> str:
    """`40k`, `2.5M`; numbers below 10,000 as they are."""
    if value >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}k" if value >= 1e4 else f"{value:.4g}"


_ROUND = [digit * 10.0**power for power in range(-4, 10) for digit in (1, 2, 5)]


def _level(axes: Axes, name: str, value: float) -> labels.Label:
    axes.axhline(value, color="0.5", linestyle="--", linewidth=1)
    return labels.Label(None, value, name, "0.4")


def _measured(axes: Axes, name: str, points: Sequence[Point], style: _Style) -> labels.Label:
    """Filled points with their intervals, joined."""
    colour, marker = style.of(name) or ("", "")
    below = [max(0.0, p.y - p.low) if p.low is not None else 0.0 for p in points]
    above = [max(0.0, p.high - p.y) if p.high is not None else 0.0 for p in points]
    axes.errorbar(
        [p.x for p in points], [p.y for p in points], yerr=[below, above], fmt=marker + "-", color=colour, capsize=3,
        markersize=5,
    )  # fmt: skip
    return labels.Label(None, points[-1].y, name, colour, marker=marker)


def _published(axes: Axes, name: str, points: Sequence[Point], style: _Style, apart: bool) -> labels.Label:
    """Hollow points, dashed. In the colour of the measured curve next to it, whose name it needs not say again."""
    colour, marker = style.of(name) or ("", "")
    xs, ys = [p.x for p in points], [p.y for p in points]
    axes.plot(xs, ys, marker + "--", color=colour, fillstyle="none", markersize=8)
    name = name.removesuffix(", published")
    text = name if apart else "" if style.beside.get(name) == name else f"{name}, published"
    return labels.Label(None, ys[-1], text, colour, marker=marker, filled=False)
