"""The first picture, a forest plot: each claim of speed as a line, what was measured next to the paper's number.

Which claims it has, in which groups and under which short names, is in papers.yaml.
"""

from __future__ import annotations

import textwrap
from functools import cache, partial
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.contracts.tasks import SCALES
from harness.show.colours import DECISIONS, of_decision
from harness.show.figure import as_bytes, as_it_stands
from harness.show.frame import KEY
from harness.show.overview import changed, compared, interval, matches

WIDTH, PITCH, ABOVE, BELOW = 9.375, 0.265, 0.85, 0.45  # inches: of the figure, of a line, of what is over and under all
WHERE, PLOT, END, SPEEDUP, CHANGED = 1.75, 4.2, 7.3, 7.97, 8.08  # inches from the left: where columns begin or end
FIT = 22, 36  # characters of a method, and of where it ran, that have room
TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500)
SOFT, FAINT = "#57606a", "#c3c9d0"


@cache
def papers() -> dict[str, Any]:
    """papers.yaml: `titles` and `picture`."""
    found: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("papers.yaml").read_text(encoding="utf-8"))
    return found


def lines(numbers: pd.DataFrame) -> pd.DataFrame:
    """The claims that have been measured, at the largest scale of any, in the picture's order: lines of
    `overview.compared` with group, short (the method) and where. numbers: the frame."""
    every, found = compared(numbers), []
    for group, listed in papers()["picture"].items():
        for one in listed:
            cells = every[(every.recipe == one["recipe"]) & every.cell.map(partial(matches, patterns=one["cell"]))]
            found += [(*line, group, *_names(line, one, numbers)) for _, line in cells.iterrows()]
    drawn = pd.DataFrame(found, columns=[*every, "group", "short", "where"])
    return drawn[drawn.scale == max(drawn.scale, key=SCALES.index, default="")]


def _names(line: Any, listed: dict[str, str], numbers: pd.DataFrame) -> tuple[str, str]:
    """Method and where it ran, as listed. In place of a text that is not listed, or that asks for a number which the
    row lacks: the row's label up to the first comma, and the rest with the column."""
    method, _, rest = line.row.partition(", ")
    own = numbers[(numbers[KEY] == line[KEY]).all(axis=1) & (numbers.apart == "")]
    known = dict(zip(own.metric, own.value, strict=True)) | {"column": line.column}
    try:
        where = listed["where"].format(**known)
    except KeyError:
        where = ", ".join(filter(None, (rest, line.column)))
    short = listed.get("method", method)
    return textwrap.shorten(short, FIT[0], placeholder="…"), textwrap.shorten(where, FIT[1], placeholder="…")


def draw(found: pd.DataFrame) -> bytes:
    """The picture of `lines` as SVG; the same lines give the same bytes. Raises `ValueError` without lines."""
    if found.empty:
        raise ValueError("none of the claims of papers.yaml has been measured")
    count = len(found) + found.group.nunique()
    height = ABOVE + PITCH * count + BELOW
    figure = Figure(figsize=(WIDTH, height))
    axes = figure.add_axes((PLOT / WIDTH, BELOW / height, (END - PLOT) / WIDTH, PITCH * count / height))

    def write(inches: float, line: float, text: str, size: float = 9, color: str = SOFT, **style: Any) -> None:
        at = inches / WIDTH, 1 - (ABOVE + PITCH * (line + 0.5)) / height
        figure.text(*at, text, size=size, color=color, va="center", **style)

    line, others = -1, set[str]()
    for group, claims in found.groupby("group", sort=False):
        line += 1
        write(0.1, line, str(group), 10.5, "black", weight="bold")
        for one in claims.itertuples(index=False):
            line += 1
            _marks(axes, line, one)
            write(0.22, line, one.short, 9.5, "black")
            write(WHERE, line, one.where)
            write(SPEEDUP, line, f"{one.value:.{2 if one.value < 10 else 0}f}×", ha="right")
            words, against, reference = changed(one).partition(" (against ")
            write(CHANGED, line, words + "*" * bool(against))
            others |= {reference.partition(" (")[0].rstrip(")")} if against else set()
    write(SPEEDUP, -0.95, "speedup", ha="right")
    write(CHANGED, -0.95, "answers changed")
    note = f"Scale {found.scale.iloc[0]}. Speedup over the baseline that the group names, with its 95% interval"
    note += f"; *: answers unlike those of {' or '.join(sorted(others))}" * bool(others)
    write(0.1, count + 0.85, note, 8.5)
    _axes(axes, found, count)
    for name in sorted(set(found.decision), key=[*DECISIONS, *found.decision].index):
        shade, marker = of_decision(name)
        axes.plot([], [], color=shade, marker=marker, linewidth=3, label=name)
    axes.plot([], [], "o", color=SOFT, fillstyle="none", markersize=8, label="the paper's")
    figure.legend(loc="upper left", ncols=7, frameon=False, fontsize=9.5)
    return as_bytes(as_it_stands(figure), "svg", text=True)


def _marks(axes: Axes, line: int, one: Any) -> None:
    shade, marker = of_decision(one.decision)
    axes.plot(interval(one) or (one.value, one.value), [line, line], color=shade, linewidth=3, solid_capstyle="round")
    axes.plot([one.value], [line], marker, color=shade, markersize=7, zorder=3)
    paper = one.claimed if pd.isna(one.paper) else one.paper
    if not pd.isna(paper):
        axes.plot([one.value, paper], [line, line], color=FAINT, linewidth=1, zorder=1)
        axes.plot([paper], [line], "o", color=SOFT, fillstyle="none", markersize=8, zorder=4)


def _axes(axes: Axes, found: pd.DataFrame, count: int) -> None:
    ends = pd.concat([found[name].astype(float) for name in ("value", "low", "high", "paper", "claimed")])
    low, high = min(0.5, ends.min()) / 1.2, max(2.0, ends.max()) * 1.2
    ticks = [tick for tick in TICKS if low <= tick <= high]
    axes.set(xscale="log", xlim=(low, high), ylim=(count - 0.5, -0.5), yticks=[])
    axes.set_xticks(ticks, [f"{tick:g}×" for tick in ticks], size=9)
    axes.set_xticks([], minor=True)
    axes.spines[:].set_visible(False)
    axes.grid(axis="x", color="#e6e9ed")
    axes.tick_params(top=True, labeltop=True, length=0, colors=SOFT)
    axes.axvline(1, color=SOFT, linewidth=1.2, zorder=1)
    axes.text(1, -1.55, "same speed", size=9, color=SOFT, ha="center")
