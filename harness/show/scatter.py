"""The overview as a figure: speedup against answers changed, a panel for each contract, a mark for each variant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from harness.decision import is_decided
from harness.show.colours import colour
from harness.show.figure import as_bytes, as_it_stands
from harness.show.overview import interval, panels, pareto

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ACROSS = 2  # panels in a row
LEAST = 1e-3  # below this share lost the x axis is linear
TICKS = ((-10, "-10%"), (-1, "-1%"), (0, "0"), (0.1, "0.1%"), (1, "1%"), (10, "10%"), (100, "100%"))
MARKERS = "os^Dv<>Ph*Xd"
PALE = 0.35  # of a mark whose speed is not decided
NOTE = (
    "scale {}; higher and further left is better; pale: no claim or exploratory; "
    "hollow: the paper's, where its quality is known; dotted: Pareto front"
)


def draw(lines: pd.DataFrame) -> bytes:
    """The overview's lines as SVG; the same lines give the same bytes. Raises `ValueError` when none can be drawn."""
    found = panels(lines)
    if not found:
        raise ValueError("no row has a speedup and answers that were compared")
    return as_bytes(as_it_stands(_figure(found)), "svg")


def _figure(groups: Mapping[str, pd.DataFrame]) -> Figure:
    from matplotlib.figure import Figure

    across = min(len(groups), ACROSS)
    down = -(-len(groups) // across)
    figure = Figure(figsize=(5.2 * across, 3.9 * down + 0.5), layout="constrained")
    places: Any = figure.subplots(down, across, squeeze=False, sharex=True).ravel()
    for unused in places[len(groups) :]:
        unused.set_axis_off()
    for axes, (contract, panel) in zip(places, groups.items(), strict=False):
        _panel(axes, contract, panel)
    least = min(100 * panel.lost.min() for panel in groups.values())
    places[0].set_xticks([t for t, _ in TICKS], [text for _, text in TICKS])
    places[0].set_xticks([], minor=True)
    places[0].set_xlim(min(-0.05, 1.3 * least), 200)
    figure.supxlabel(NOTE.format(next(iter(groups.values())).scale.iloc[0]), fontsize="x-small", color="0.4", wrap=True)
    return figure


def _panel(axes: Axes, contract: str, panel: pd.DataFrame) -> None:
    first = panel.iloc[0]
    axes.set_title(f"{contract.replace('-', ' ')}: {first.task}", fontsize="medium")
    axes.set_xscale("symlog", linthresh=100 * LEAST)
    axes.set_yscale("log")
    axes.axhline(1, color="0.6", linewidth=0.8)
    axes.grid(alpha=0.25)
    front = pareto(panel[panel.decision.map(is_decided)])
    axes.plot(100 * front.lost, front.value, ":", color="0.5", zorder=1)
    for number, line in enumerate(panel.itertuples(index=False, name="Line")):
        alpha, shade = 1.0 if is_decided(line.decision) else PALE, colour(line.method)
        low, high = interval(line) or (line.value, line.value)
        error = [[max(0.0, line.value - low)], [max(0.0, high - line.value)]]
        axes.errorbar(
            [100 * line.lost], [line.value], yerr=error, fmt=MARKERS[number % len(MARKERS)], color=shade, alpha=alpha,
            capsize=3, markersize=6, label=line.name,
        )  # fmt: skip
        if not pd.isna(line.paper) and line.paper > 0 and not pd.isna(line.paper_lost):
            axes.plot([100 * line.paper_lost], [line.paper], "o", color=shade, fillstyle="none", markersize=9)
    axes.legend(fontsize="x-small", frameon=False, loc="best")
    low, high = axes.get_ylim()
    low, high = min(low, 0.5), max(high, 2.0)
    axes.set_ylim(low * 0.8, high * 1.25)
    ticks = [t for t in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100) if low <= t <= high]
    axes.set_yticks(ticks, [f"{t:g}×" for t in ticks])
    axes.set_yticks([], minor=True)
    axes.tick_params(labelbottom=True)
    words = {"answers": "answers unlike those of", "perplexity": "perplexity added to"}
    losses = " or ".join(f"{words[kind]} {first.reference}" for kind in sorted(set(panel.lost_of)))
    axes.set_xlabel(losses, fontsize="small")
    axes.set_ylabel(f"speedup over {first.baseline}", fontsize="small")
