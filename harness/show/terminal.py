"""A table on the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import pandas as pd
from rich import box
from rich.console import Console, Group
from rich.table import Column
from rich.table import Table as RichTable
from rich.text import Text

from harness.show.claims import COLOURS, SHADES, Verdict, Verdicts, counted
from harness.show.tables import CLAIMS, TARGETS, WORDS, Table, sections

STAYING = ("row", "column", "speedup", "decision")  # heads of columns that a narrow terminal keeps
GAP = 3  # blanks between two columns
LABEL = 18  # a label is not broken at fewer characters while intervals can go to a second line


def show(table: Table, console: Console) -> None:
    """Print what a reader came for: the leading table, its notes, the worked examples and the verdicts."""
    console.print(Text(table.title, style="bold"))
    columns = [] if table.lead.empty else list(table.lead["column"].unique())
    shared = len(columns) == 1  # what all rows share stands above them
    console.print(_pairs([*table.above.items(), *[("Column", column) for column in columns if shared and column]]))
    fitting, left_out = _fitting(table.lead.drop(columns="column") if shared else table.lead, console)
    console.print(_rich(fitting, console.width))
    if left_out:
        console.print(Text(f"Not enough room for: {', '.join(left_out)}; table.md has every column.", "bright_black"))
    for note in table.notes:
        console.print(Text(note, style="bright_black"))
    elsewhere = ["details"] * (not table.details.empty) + ["task and models"] * bool(table.about)
    elsewhere += [f"{len(table.alone)} published numbers without a measured one"] * (not table.alone.empty)
    if elsewhere:
        console.print(Text(f"In table.md: {', '.join(elsewhere)}.", style="bright_black"))
    for place, (given, outputs) in enumerate(table.examples, 1):
        console.print(Text(f"\nExample {place}", style="bold"))
        console.print(_pairs((*given.items(), *outputs.items())))
    for heading, here, others in table.judged:
        console.print(Text(f"\n{heading}", style="bold"))
        if here:
            console.print(_pairs(((v.outcome, v.sentence) for v in here), COLOURS))
        if others:
            console.print(Text(others, "bright_black"))
    for command in table.commands:
        console.print(Text(f"To settle: {command}", style="bright_black"), soft_wrap=True)


def show_summary(judged: Sequence[tuple[str, Verdicts]], console: Console) -> None:
    """One line for each recipe of a run: how many of its claims and targets hold, do not hold, stay open."""
    grid = RichTable("recipe", CLAIMS, TARGETS, box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name, verdicts in judged:
        grid.add_row(name, *(_counted(group) for group in (verdicts.claims, verdicts.targets)))
    console.print(grid)


def _counted(group: Sequence[Verdict]) -> Text:
    """`holds: 2, does not hold: 1`, of those that stand at this scale."""
    parts = [Text(f"{outcome}: {count}", COLOURS[outcome]) for outcome, count in counted(group).items()]
    return Text(", ").join(parts) if parts else Text("none at this scale" if group else "none", "bright_black")


def _fitting(grid: pd.DataFrame, console: Console) -> tuple[pd.DataFrame, list[str]]:
    """The table with intervals on a second line where it is too wide otherwise, without the columns at its right end
    that do not fit then, and the names of these. Labels, speedup and decision stay."""

    kept = list(range(grid.shape[1]))
    if _spare(grid, console.width, LABEL) < 0:
        grid = grid.map(lambda text: text.replace(" [", "\n["))
    for place, head in reversed(list(enumerate(grid))):
        if not head.startswith(STAYING) and _spare(grid.iloc[:, kept], console.width) < 0:
            kept.remove(place)
    return grid.iloc[:, kept], [head for place, head in enumerate(grid) if place not in kept]


def _widths(grid: pd.DataFrame, label: int = 0) -> list[tuple[int, int]]:
    """The least and the whole width of each column. Heads and words may be broken at any blank, numbers nowhere. label:
    width that a column of words has at least, if it needs it."""
    found = []
    for place, head in enumerate(grid):
        lines, head_words = [line for text in grid.iloc[:, place] for line in text.split("\n")], head.replace("_", " ")
        whole = max(map(len, [head_words, *lines]))
        if head in WORDS:
            least = max([min(whole, label), *(len(word) for line in [head_words, *lines] for word in line.split())])
        else:
            least = max(map(len, [*head_words.split(), *lines]))
        found.append((least, whole))
    return found


def _spare(grid: pd.DataFrame, width: int, label: int = 0) -> int:
    """Characters that are left of a width when every column has its least; below 0: the table does not fit."""
    return width - sum(least for least, _ in _widths(grid, label)) - GAP * (int(grid.shape[1]) - 1)


def _rich(grid: pd.DataFrame, width: int) -> Group:
    """The table in this width, where it fits: what is spare goes to the columns that lack most. rich itself would cut
    columns. Each section has its heading above its lines."""
    widths, spare = _widths(grid), _spare(grid, width)
    given = [least for least, _ in widths]
    while spare > 0 and (lack := max(whole - has for has, (_, whole) in zip(given, widths, strict=True))):
        given[next(n for n, (_, whole) in enumerate(widths) if whole - given[n] == lack)] += 1
        spare -= 1

    def empty(heads: bool) -> RichTable:
        made = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, show_header=heads, padding=(0, 1))
        for head, size in zip(grid, given, strict=True):
            justify: Literal["left", "right"] = "left" if head in WORDS else "right"
            made.add_column(Text(head.replace("_", " ")), justify=justify, width=size)
        return made

    parts: list[RichTable | Text] = [empty(heads=True)]
    for heading, lines in sections(grid):
        rows = empty(heads=False)
        for line in lines:
            rows.add_row(*(Text(cell, style=SHADES.get(cell, "")) for cell in line))
        parts += [Text(f"\n{heading}", style="bright_black"), rows] if heading else [rows]
    return Group(*parts)


def _pairs(lines: Iterable[tuple[str, str]], colours: Mapping[Any, str] | None = None) -> RichTable:
    """Labels, grey or in their colour, and to the right of each its text."""
    grid = RichTable(Column(no_wrap=True), Column(), box=None, show_header=False, pad_edge=False)
    for label, text in lines:
        grid.add_row(Text(label, (colours or {}).get(label, "bright_black")), Text(text))
    return grid
