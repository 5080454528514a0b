"""The overview as a figure: speedup against quality lost, a panel for each contract, a mark for each method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harness.contracts.tasks import SCALES
from harness.show.overview import DECIDED, Mark, pareto
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


def one_a_method(marks: Sequence[Mark]) -> dict[str, list[Mark]]:
    """Contract -> a mark for each method whose answers were compared: of its largest scale, one whose speed is decided
    before all others, then the first."""
    found: dict[str, dict[str, Mark]] = {}
    for mark in sorted(marks, key=lambda m: (-SCALES.index(m.scale), m.decision not in DECIDED)):
        if mark.lost is not None:
            found.setdefault(mark.contract, {}).setdefault(mark.method, mark)
    return {contract: list(found[contract].values()) for contract in sorted(found)}


def draw(marks: Sequence[Mark]) -> bytes:
    """The figure as SVG; the same marks give the same bytes. Raises `ValueError` when no mark can be drawn."""
    groups = one_a_method(marks)
    if not groups:
        raise ValueError("no row has a speedup and answers that were compared")
    return as_bytes(_figure(groups), "svg")


def _figure(groups: Mapping[str, Sequence[Mark]]) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    across = min(len(groups), ACROSS)
    down = -(-len(groups) // across)
    figure = Figure(figsize=(5.2 * across, 3.9 * down + 0.5), layout="constrained")
    FigureCanvasAgg(figure)
    panels: Any = figure.subplots(down, across, squeeze=False, sharex=True).ravel()
    for unused in panels[len(groups) :]:
        unused.set_axis_off()
    shown = list(zip(panels, groups.items(), strict=False))
    for panel, (contract, marks) in shown:
        _panel(panel, contract, marks)
    every = [mark for marks in groups.values() for mark in marks]
    panels[0].set_xticks([t for t, _ in TICKS], [text for _, text in TICKS])
    panels[0].set_xticks([], minor=True)
    panels[0].set_xlim(min([-0.05, *(130 * (m.lost or 0) for m in every)]), 900)  # room for labels to the right
    figure.supxlabel(
        "filled: speed decided by the rule of measuring; pale: no claim or exploratory; hollow: the paper's speedup; "
        "dotted line: Pareto front",
        fontsize="x-small", color="0.4", wrap=True,
    )  # fmt: skip
    figure.draw_without_rendering()  # the labels' places depend on the layout
    for panel, (_, marks) in shown:
        several = len(_baselines(marks)) > 1
        labels.place(panel, [_label(mark, several) for mark in marks])
    return figure


def _panel(axes: Axes, contract: str, marks: Sequence[Mark]) -> None:
    baselines = _baselines(marks)
    over = f", over {baselines[0]}" if len(baselines) == 1 else ""
    axes.set_title(contract.replace("-", " ") + over, fontsize="medium")
    axes.set_xscale("symlog", linthresh=100 * LEAST)
    axes.set_yscale("log")
    axes.axhline(1, color="0.6", linewidth=0.8)
    axes.grid(alpha=0.25)
    front = pareto([mark for mark in marks if mark.decision in DECIDED])
    axes.plot([100 * (m.lost or 0) for m in front], [m.speedup for m in front], ":", color="0.5", zorder=1)
    for mark in marks:
        x, alpha = 100 * (mark.lost or 0), 1.0 if mark.decision in DECIDED else PALE
        low, high = mark.interval or (mark.speedup, mark.speedup)
        error = [[max(0.0, mark.speedup - low)], [max(0.0, high - mark.speedup)]]
        shade = colour(mark.method)
        axes.errorbar([x], [mark.speedup], yerr=error, fmt="o", color=shade, alpha=alpha, capsize=3, markersize=6)
        if mark.published is not None and mark.published > 0:
            axes.plot([x], [mark.published], "o", color=shade, fillstyle="none", markersize=9)
    low, high = axes.get_ylim()
    low, high = min(low, 0.5), max(high, 2.0)
    axes.set_ylim(low * 0.8, high * 1.25)
    ticks = [t for t in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100) if low <= t <= high]
    axes.set_yticks(ticks, [f"{t:g}×" for t in ticks])
    axes.set_yticks([], minor=True)
    axes.tick_params(labelbottom=True)
    axes.set_xlabel("answers unlike the exact method's, or perplexity added", fontsize="small")
    axes.set_ylabel("speedup", fontsize="small")


def _label(mark: Mark, several: bool) -> labels.Label:
    """A mark's name; with its baseline where the panel has several."""
    name = f"{mark.method} over {mark.baseline}" if several else mark.method
    alpha = 1.0 if mark.decision in DECIDED else 0.7
    return labels.Label(100 * (mark.lost or 0), mark.speedup, name, colour(mark.method), alpha)


def _baselines(marks: Sequence[Mark]) -> list[str]:
    return list(dict.fromkeys(mark.baseline for mark in marks))
