"""The overview as a figure: speedup against answers changed, a panel for each contract, a mark for each variant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harness.show.overview import DECIDED, Mark, Panel, panels, pareto
from harness.show.report import labels
from harness.show.report.colours import colour
from harness.show.report.figure import as_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ACROSS = 2  # panels in a row
LEAST = 1e-3  # below this share lost the x axis is linear
TICKS = ((-10, "-10%"), (-1, "-1%"), (0, "0"), (0.1, "0.1%"), (1, "1%"), (10, "10%"), (100, "100%"))
PALE = 0.35  # of a mark whose speed is not decided
NOTE = (
    "scale {}; higher and further left is better; pale: no claim or exploratory; "
    "hollow: the paper's, where its quality is known; dotted: Pareto front"
)


def draw(marks: Sequence[Mark]) -> bytes:
    """The figure as SVG; the same marks give the same bytes. Raises `ValueError` when no mark can be drawn."""
    found = panels(marks)
    if not found:
        raise ValueError("no row has a speedup and answers that were compared")
    return as_bytes(_figure(found), "svg")


def _figure(groups: Mapping[str, Panel]) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    across = min(len(groups), ACROSS)
    down = -(-len(groups) // across)
    figure = Figure(figsize=(5.2 * across, 3.9 * down + 0.5), layout="constrained")
    FigureCanvasAgg(figure)
    places: Any = figure.subplots(down, across, squeeze=False, sharex=True).ravel()
    for unused in places[len(groups) :]:
        unused.set_axis_off()
    shown = list(zip(places, groups.items(), strict=False))
    for axes, (contract, panel) in shown:
        _panel(axes, contract, panel)
    every = [mark for panel in groups.values() for mark in panel.marks]
    places[0].set_xticks([t for t, _ in TICKS], [text for _, text in TICKS])
    places[0].set_xticks([], minor=True)
    places[0].set_xlim(min([-0.05, *(1.3 * _x(m) for m in every)]), 200_000)  # room for labels to the right
    figure.supxlabel(NOTE.format(every[0].scale), fontsize="x-small", color="0.4", wrap=True)
    figure.draw_without_rendering()  # the labels' places depend on the layout
    for axes, (_, panel) in shown:
        labels.place(axes, [_label(mark) for mark in panel.marks])
    return figure


def _panel(axes: Axes, contract: str, panel: Panel) -> None:
    axes.set_title(f"{contract.replace('-', ' ')}: {panel.task}", fontsize="medium")
    axes.set_xscale("symlog", linthresh=100 * LEAST)
    axes.set_yscale("log")
    axes.axhline(1, color="0.6", linewidth=0.8)
    axes.grid(alpha=0.25)
    front = pareto([mark for mark in panel.marks if mark.decision in DECIDED])
    axes.plot([_x(mark) for mark in front], [mark.speedup for mark in front], ":", color="0.5", zorder=1)
    for mark in panel.marks:
        alpha, shade = 1.0 if mark.decision in DECIDED else PALE, colour(mark.method)
        low, high = mark.interval or (mark.speedup, mark.speedup)
        error = [[max(0.0, mark.speedup - low)], [max(0.0, high - mark.speedup)]]
        axes.errorbar(
            [_x(mark)], [mark.speedup], yerr=error, fmt="o", color=shade, alpha=alpha, capsize=3, markersize=6
        )
        if mark.published is not None and mark.published > 0 and mark.published_lost is not None:
            place = [100 * mark.published_lost], [mark.published]
            axes.plot(*place, "o", color=shade, fillstyle="none", markersize=9)
    low, high = axes.get_ylim()
    low, high = min(low, 0.5), max(high, 2.0)
    axes.set_ylim(low * 0.8, high * 1.25)
    ticks = [t for t in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100) if low <= t <= high]
    axes.set_yticks(ticks, [f"{t:g}×" for t in ticks])
    axes.set_yticks([], minor=True)
    axes.tick_params(labelbottom=True)
    axes.set_xlabel(_axis(panel), fontsize="small")
    axes.set_ylabel(f"speedup over {panel.baseline}", fontsize="small")


def _axis(panel: Panel) -> str:
    """What the x axis is of a panel."""
    kinds = {mark.lost.of for mark in panel.marks if mark.lost is not None}
    words = {"answers": "answers unlike those of", "perplexity": "perplexity added to"}
    return " or ".join(f"{words[kind]} {panel.against}" for kind in sorted(kinds))


def _x(mark: Mark) -> float:
    return 100 * mark.lost.share if mark.lost is not None else 0.0


def _label(mark: Mark) -> labels.Label:
    alpha = 1.0 if mark.decision in DECIDED else 0.7
    return labels.Label(_x(mark), mark.speedup, mark.name, colour(mark.method), alpha)
