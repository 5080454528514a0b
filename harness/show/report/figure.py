"""The recipe's figure: measured curves with their intervals, the paper's points with them; or stacked bars,
histograms or graphs."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.contracts.metrics import Metric
from harness.contracts.rows import Row
from harness.contracts.tasks import Scale
from harness.files import write_atomically
from harness.measure.own_metrics import among
from harness.plan.cell import Cell
from harness.plan.recipe import Recipe
from harness.show.report import bars, graph, histogram
from harness.show.report.context import machine_line
from harness.show.report.published import Published, comparable, places
from harness.show.report.selection import by_machine, interval_of, value_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKERS = "os^Dv<>P*X"
LEGEND = 8  # curves named within the axes; more are named outside
DECADES = 100  # an x axis over so large a ratio is logarithmic


@dataclass(frozen=True, slots=True)
class Point:
    """One point; `low` and `high` bound y where an interval is known."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None


Curves = dict[str, list[Point]]  # row label -> points by x


@dataclass(frozen=True, slots=True)
class Panel:
    """What one panel of a figure shows of the measured rows: the name of its y axis, curves, level lines."""

    axis: str
    curves: Curves
    levels: dict[str, float]


def draw(
    recipe: Recipe, scale: Scale, rows: Sequence[Row], published: Published, folder: Path, *,
    cells: Sequence[Cell] = (), machine: str | None = None,
) -> list[Path]:  # fmt: skip
    """Write `figure.svg` and `figure.png`; nothing when there is nothing to draw (`drawing`).

    The same rows give the same bytes of SVG. Raises `MachineError` when a file cannot be written.
    """
    drawn = drawing(recipe, scale, rows, published, cells=cells, machine=machine)
    if drawn is None:
        return []
    paths = {kind: folder / f"figure.{kind}" for kind in ("svg", "png")}
    for kind, path in paths.items():
        write_atomically(path, as_bytes(drawn, kind))
    return list(paths.values())


def drawing(
    recipe: Recipe, scale: Scale, rows: Sequence[Row], published: Published, *,
    cells: Sequence[Cell] = (), machine: str | None = None,
) -> Figure | None:  # fmt: skip
    """The recipe's figure; None when it has none or no row has both coordinates.

    cells: what the recipe expands to; they say which published curve bears a measured one's colour.
    """
    if recipe.figure is None:
        return None
    ours = next(iter(by_machine(rows, recipe.name, scale, machine).values()), [])
    if recipe.figure.histogram:
        return _histograms(recipe, scale, ours)
    if recipe.figure.graph:
        return _graphs(recipe, scale, ours)
    if recipe.figure.parts:
        return _bars(recipe, scale, ours)
    return _curves(recipe, scale, ours, published, cells)


def as_bytes(figure: Figure, kind: str) -> bytes:
    """A figure as `svg` or `png`."""
    import matplotlib

    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "shortcut-harness"}):
        figure.savefig(buffer, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else {})
    return buffer.getvalue()


def _bars(recipe: Recipe, scale: Scale, rows: Sequence[Row]) -> Figure | None:
    assert recipe.figure is not None
    groups = bars.measured(rows, recipe.figure.parts)
    title = f"{recipe.name}, scale {scale}: {recipe.title}"
    parts = [among(rows, part) for part in recipe.figure.parts]
    return bars.figure(groups, parts, title, machine_line(rows)) if groups else None


def _histograms(recipe: Recipe, scale: Scale, rows: Sequence[Row]) -> Figure | None:
    groups = histogram.measured(rows)
    title = f"{recipe.name}, scale {scale}: {recipe.title}"
    return histogram.figure(groups, title, machine_line(rows)) if groups else None


def _graphs(recipe: Recipe, scale: Scale, rows: Sequence[Row]) -> Figure | None:
    assert recipe.figure is not None
    groups = graph.measured(rows, recipe.figure.graph)
    title = f"{recipe.name}, scale {scale}: {recipe.title}"
    return graph.figure(groups, title, machine_line(rows)) if groups else None


def _curves(
    recipe: Recipe, scale: Scale, rows: Sequence[Row], published: Published, cells: Sequence[Cell]
) -> Figure | None:
    assert recipe.figure is not None
    x, y, beside = recipe.figure.x, recipe.figure.y, recipe.figure.beside
    curves = measured_curves(rows, x, y)
    second = measured_curves(rows, x, beside) if beside else {}
    if not curves and not second:
        return None
    printed = {(number.row, number.column) for number in published.numbers}
    paired = {name: labels for name, labels in places(cells).items() if labels in printed}
    theirs = _parts([column for _, column in paired.values()], x)
    parts = _parts([row["column"] for row in rows], x)
    measured: dict[str, str] = {}  # a published curve's name -> that of the first measured one next to it
    for row in rows:
        name = _name(row["row"], row["column"], parts)
        if name in curves and row["cell"] in paired:
            measured.setdefault(_name(*paired[row["cell"]], theirs), name)
    axes = among(rows, x), among(rows, y)
    same_axes = comparable(axes[1], scale in recipe.data_of_paper)
    papers = published_curves(published, *axes, theirs)
    panels = [Panel(axes[1].axis, curves, levels(rows, x, y))]
    if second:
        panels.append(Panel(among(rows, beside).axis, second, levels(rows, x, beside)))
    return _draw(recipe, scale, axes, panels, papers, measured, same_axes, machine_line(rows))


def measured_curves(rows: Sequence[Row], x: str, y: str) -> Curves:
    """Points of the finished rows by row label, and by what else than `x=VALUE` their columns differ in. x and y are
    metrics, counters or parameters of method or task."""
    parts = _parts([row["column"] for row in rows], x)
    curves: Curves = {}
    for row in rows:
        at, value = _coordinate(row, x), _coordinate(row, y)
        if row["status"] == "ok" and at is not None and value is not None:
            low, high = interval_of(row, y) or (None, None)
            curves.setdefault(_name(row["row"], row["column"], parts), []).append(Point(at, value, low, high))
    return {name: sorted(points, key=lambda p: (p.x, p.y)) for name, points in curves.items()}


def levels(rows: Sequence[Row], x: str, y: str) -> dict[str, float]:
    """y of the finished rows to which x does not apply (the LM alone has no FoSS), by cell: drawn as level lines."""
    found = ((row, _coordinate(row, y)) for row in rows if row["status"] == "ok" and _coordinate(row, x) is None)
    return {row["cell"]: value for row, value in found if value is not None}


def published_curves(published: Published, x: Metric, y: Metric, parts: frozenset[str] = frozenset()) -> Curves:
    """The paper's points by row label and those of the column's parts that tell measured curves apart: numbers of y
    whose column says `x=VALUE`, or for which x is published too."""
    curves: Curves = {}
    for number in published.numbers:
        value = number.as_measured(y)
        if value is None:
            continue
        at = _in_label(number.column, x.name)
        if at is None:
            printed_at = published.lookup(number.row, number.column, x)
            at = printed_at.as_measured(x) if printed_at else None
        if at is not None:
            name = _name(number.row, number.column, parts)
            curves.setdefault(name, []).append(Point(at, value))
    return {name: sorted(points, key=lambda p: (p.x, p.y)) for name, points in curves.items()}


def _parts(columns: Sequence[str], x: str) -> frozenset[str]:
    """Parts in which column labels that say `x=VALUE` differ but for this."""
    split = [
        {part for part in column.split(" / ") if _in_label(part, x) is None}
        for column in columns
        if _in_label(column, x) is not None
    ]
    return frozenset(set[str]().union(*split) - set[str].intersection(*split)) if split else frozenset()


def _name(row: str, column: str, parts: frozenset[str]) -> str:
    """A curve's name."""
    return ", ".join([row, *(part for part in column.split(" / ") if part in parts)])


def _coordinate(row: Row, name: str) -> float | None:
    value = value_of(row, name)
    for side in ("method", "task"):
        if value is None:
            value = row["params"][side].get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


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
    recipe: Recipe, scale: Scale, axes: tuple[Metric, Metric], ours: Sequence[Panel], papers: Curves,
    measured: dict[str, str], same_axes: bool, machine: str,
) -> Figure:  # fmt: skip
    """The panels of what was measured, side by side. The paper's curves are in the first one, or in one of their own,
    with values of their own, where they are of other data."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    apart = bool(papers) and not same_axes
    ratios = [3] * len(ours) + [2] * apart
    figure = Figure(figsize=(7.0 + 4.0 * (len(ratios) - 1), 4.8), layout="constrained")
    FigureCanvasAgg(figure)
    panels: Any = figure.subplots(1, len(ratios), squeeze=False, sharex=True, width_ratios=ratios)[0]
    known = {name: None for panel in ours for name in panel.curves}
    names = [*known, *(name for name in papers if name not in measured)]
    for panel, drawn in zip(panels, ours, strict=False):
        panel.set_ylabel(drawn.axis)
        for number, (name, value) in enumerate(drawn.levels.items()):
            panel.axhline(value, color="0.5", linestyle=("--", ":", "-.")[number % 3], label=name)
        for name, points in drawn.curves.items():
            _curve(panel, names.index(name), name, points, measured=True)
    theirs = panels[-1] if apart else panels[0]
    theirs.set_ylabel(axes[1].axis)
    for name, points in papers.items():
        _curve(theirs, names.index(measured.get(name, name)), f"{name}, published", points, measured=False)
    entries = max(len(known), len(papers)) if apart else len(known) + len(papers)
    every = [points for drawn in ours for points in drawn.curves.values()]
    xs = sorted({point.x for points in [*every, *papers.values()] for point in points})
    for panel in panels:
        panel.set_xlabel(axes[0].axis)
        if xs[0] > 0 and xs[-1] / xs[0] >= DECADES:
            panel.set_xscale("log")
            panel.set_xticks(xs, [f"{x:g}" for x in xs], minor=False)
            panel.set_xticks([], minor=True)
        panel.grid(alpha=0.3)
        if entries <= LEGEND and panel.get_legend_handles_labels()[0]:
            panel.legend(fontsize="small", frameon=False)
    if entries > LEGEND:  # they would cover the curves
        figure.set_figwidth(figure.get_figwidth() + 4.0)
        found = [panel.get_legend_handles_labels() for panel in panels]
        handles = {label: handle for pair in found for handle, label in zip(*pair, strict=True)}
        figure.legend(handles.values(), handles.keys(), loc="outside right center", fontsize="small", frameon=False)
    for panel in panels[: len(ours)]:
        panel.set_title(f"measured, scale {scale}", fontsize="medium")
    if apart:
        panels[-1].set_title("published (other data: compare shapes, not values)", fontsize="medium")
    elif papers:
        panels[0].set_title(f"measured, scale {scale}; hollow: published", fontsize="medium")
    width = 120 if len(panels) > 1 else 76
    figure.suptitle(textwrap.fill(f"{recipe.name}: {recipe.title}", width), fontsize="medium")
    bounded = any(p.low is not None for points in every for p in points)
    figure.supxlabel(("bars: 95% intervals; " if bounded else "") + machine, fontsize="x-small", color="0.4")
    return figure


def _curve(axes: Axes, place: int, label: str, points: list[Point], *, measured: bool) -> None:
    """One row's points: filled and joined when measured, hollow and dashed when published; colour by place."""
    colour, marker = f"C{place % 10}", MARKERS[place % len(MARKERS)]
    xs, ys = [p.x for p in points], [p.y for p in points]
    if not measured:
        axes.plot(xs, ys, marker + "--", color=colour, fillstyle="none", markersize=8, label=label)
        return
    below = [p.y - p.low if p.low is not None else 0.0 for p in points]
    above = [p.high - p.y if p.high is not None else 0.0 for p in points]
    intervals = [[max(0.0, b) for b in below], [max(0.0, a) for a in above]]
    axes.errorbar(xs, ys, yerr=intervals, fmt=marker + "-", color=colour, capsize=3, markersize=5, label=label)
