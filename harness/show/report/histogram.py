"""How the speedup varies from item to item: a histogram of the items' own ratios, a panel for each row."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.contracts.rows import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ACROSS = 2  # panels in a row
_LEAST, _MOST = 10, 40  # bins


def speedups(row: Row) -> list[float]:
    """Time of the baseline over that of the method, for each item that was timed alone: sums over the passes that the
    item was in, in the order of their numbers. Empty where a call answers several items, or a pass has too many to be
    kept apart."""
    sums: dict[int, list[float]] = {}
    for process in (row["timing"] or {}).get("processes", ()):
        for one in process["pairs"]:
            items = one["items"] or ()
            sides = one["baseline_ns"] or (), one["method_ns"] or ()
            if any(len(times) != len(items) for times in sides):
                continue
            for item, *times in zip(items, *sides, strict=True):
                total = sums.setdefault(item, [0.0, 0.0])
                total[:] = (known + new for known, new in zip(total, times, strict=True))
    return [baseline / method for _, (baseline, method) in sorted(sums.items())]


def measured(rows: Sequence[Row]) -> dict[str, list[float]]:
    """Cell -> its items' speedups, of the finished rows that have some."""
    found = {row["cell"]: speedups(row) for row in rows if row["status"] == "ok"}
    return {name: values for name, values in found.items() if values}


def figure(groups: Mapping[str, Sequence[float]], title: str, machine: str) -> Figure:
    """Histograms over one axis. In each panel a line marks the median, and a dotted one where both sides take equally
    long."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    across = min(len(groups), ACROSS)
    down = -(-len(groups) // across)
    drawn = Figure(figsize=(max(6.0, 5.0 * across), 0.9 + 3.2 * down), layout="constrained")
    FigureCanvasAgg(drawn)
    panels: Any = drawn.subplots(down, across, squeeze=False, sharex=True).ravel()
    for unused in panels[len(groups) :]:
        unused.set_axis_off()
    every = np.concatenate([np.asarray(values) for values in groups.values()])
    edges = np.histogram_bin_edges(every, bins=int(np.clip(len(every) ** 0.5, _LEAST, _MOST)))
    for panel, (name, values) in zip(panels, groups.items(), strict=False):
        middle, slower = float(np.median(values)), float(np.mean(np.asarray(values) < 1))
        panel.hist(values, bins=edges, color="C0", alpha=0.8)
        panel.axvline(middle, color="C1", label=f"median {middle:.2f}")
        panel.axvline(1.0, color="0.3", linestyle=":", label=f"{slower:.0%} of the items slower")
        panel.set_title(textwrap.fill(f"{name} ({len(values)} items)", 60), fontsize="medium")
        panel.set_ylabel("items")
        panel.tick_params(labelbottom=True)
        panel.set_xlabel("speedup of one item (times)")
        panel.grid(alpha=0.3)
        panel.legend(fontsize="small", frameon=False)
    drawn.suptitle(textwrap.fill(title, 50 * max(1, across)), fontsize="medium")
    drawn.supxlabel(textwrap.fill(machine, 70 * max(1, across)), fontsize="x-small", color="0.4")
    return drawn
