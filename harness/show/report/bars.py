"""Stacked bars: a panel for each column, in it a bar for each row, such as generation with retrieval on top."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.contracts.metrics import Metric
from harness.contracts.rows import Row
from harness.show.report.selection import interval_of, value_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ACROSS = 3  # panels in a row
Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: values of the parts, from below, and the 95% interval of each where it is known."""

    name: str
    values: tuple[float, ...]
    intervals: tuple[Interval | None, ...]


def measured(rows: Sequence[Row], parts: Sequence[str]) -> dict[str, list[Bar]]:
    """Column label -> a bar for each finished row that has every part (metrics or counters), in the rows' order."""
    found: dict[str, list[Bar]] = {}
    for row in rows:
        values = [value for part in parts if (value := value_of(row, part)) is not None]
        if row["status"] == "ok" and len(values) == len(parts):
            bar = Bar(row["row"], tuple(values), tuple(interval_of(row, part) for part in parts))
            found.setdefault(row["column"], []).append(bar)
    return found


def figure(groups: Mapping[str, Sequence[Bar]], parts: Sequence[Metric], title: str, machine: str) -> Figure:
    """A panel for each column, with an axis of its own: retrievers differ by orders of magnitude."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    across = min(len(groups), ACROSS)
    down = -(-len(groups) // across)
    drawn = Figure(figsize=(max(5.0, 3.4 * across), 0.8 + 4.0 * down), layout="constrained")
    FigureCanvasAgg(drawn)
    panels: Any = drawn.subplots(down, across, squeeze=False).ravel()
    for unused in panels[len(groups) :]:
        unused.set_axis_off()
    for panel, (column, bars) in zip(panels, groups.items(), strict=False):
        floors = [0.0] * len(bars)
        for place, part in enumerate(parts):
            heights = [bar.values[place] for bar in bars]
            panel.bar(range(len(bars)), heights, bottom=floors, width=0.6, color=f"C{place}", label=part.label)
            floors = [floor + height for floor, height in zip(floors, heights, strict=True)]
            shift = 0.12 * (place - (len(parts) - 1) / 2)  # whiskers of thin parts would cover one another
            for at, (bar, top) in enumerate(zip(bars, floors, strict=True)):
                if (interval := bar.intervals[place]) is not None:
                    ends = [max(0.0, bar.values[place] - interval[0]), max(0.0, interval[1] - bar.values[place])]
                    panel.errorbar(at + shift, top, yerr=[[e] for e in ends], color="0.2", capsize=3, fmt="none")
        panel.set_xticks(range(len(bars)), [textwrap.fill(bar.name, 12) for bar in bars], fontsize="small")
        panel.set_title(column, fontsize="medium")
        panel.set_ylim(bottom=0)
        panel.grid(axis="y", alpha=0.3)
    units = {part.unit for part in parts}
    panels[0].set_ylabel(units.pop() if len(units) == 1 else "")
    panels[0].legend(*(reversed(found) for found in panels[0].get_legend_handles_labels()), frameon=False)
    drawn.suptitle(textwrap.fill(title, 32 * max(2, across)), fontsize="medium")
    known = any(interval for bars in groups.values() for bar in bars for interval in bar.intervals)
    note = "whiskers: 95% interval of the part that ends there; " if known else ""
    drawn.supxlabel(textwrap.fill(note + machine, 40 * max(2, across)), fontsize="x-small", color="0.4")
    return drawn
