"""The overview as a figure: speedup against answers changed, a panel for each contract, a mark for each variant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harness.show.overview import DECIDED, Mark, one_a_method, pareto
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
    "scale {}; filled: speed decided by the rule of measuring; pale: no claim or exploratory; "
    "hollow: the paper's, where its quality is known; dotted: Pareto front of one task and baseline"
)


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
    panels[0].set_xlim(min([-0.05, *(1.3 * _x(m) for m in every)]), 900)  # room for labels to the right
    figure.supxlabel(NOTE.format(every[0].scale), fontsize="x-small", color="0.4", wrap=True)
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
    groups: dict[tuple[str, str], list[Mark]] = {}
    for mark in marks:
        if mark.decision in DECIDED:
            groups.setdefault((mark.task, mark.baseline), []).append(mark)
    for group in groups.values():
        front = pareto(group)
        axes.plot([_x(m) for m in front], [m.speedup for m in front], ":", color="0.5", zorder=1)
    for mark in marks:
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
    axes.set_xlabel(_axis(marks), fontsize="small")
    axes.set_ylabel("speedup", fontsize="small")


def _axis(marks: Sequence[Mark]) -> str:
    """What the x axis is of these marks."""
    kinds = {mark.lost.of for mark in marks if mark.lost is not None}
    words = {"answers": "answers unlike the exact method's", "perplexity": "perplexity added"}
    return " or ".join(words[kind] for kind in sorted(kinds))


def _x(mark: Mark) -> float:
    return 100 * mark.lost.share if mark.lost is not None else 0.0


def _label(mark: Mark, several: bool) -> labels.Label:
    """A mark's name; with its baseline where the panel has several."""
    name = f"{mark.name} over {mark.baseline}" if several else mark.name
    alpha = 1.0 if mark.decision in DECIDED else 0.7
    return labels.Label(_x(mark), mark.speedup, name, colour(mark.method), alpha)


def _baselines(marks: Sequence[Mark]) -> list[str]:
    return list(dict.fromkeys(mark.baseline for mark in marks))
