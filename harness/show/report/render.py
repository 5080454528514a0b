"""A table on the terminal, as Markdown and as CSV."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable
from rich.text import Text

from harness.common.files import write_atomically
from harness.show.report.claims import Outcome, Verdict, Verdicts, told
from harness.show.report.layout import SETTING
from harness.show.report.tables import Grid, Table

COLOURS: dict[Outcome, str] = {
    "holds": "green", "does not hold": "red", "no difference shown": "yellow", "not settled": "yellow",
    "not tested": "bright_black",
}  # fmt: skip
CELL_COLOURS = {
    "faster": "green", "slower": "red", "FAILED": "red", "TIMEOUT": "red", "KILLED": "red", "not run": "yellow",
}  # fmt: skip
DISPENSABLE = (SETTING, "items", "vs")  # left out of a narrow terminal, in this order
WORDS = ("row", "column", "vs", "decision", SETTING)  # columns of text: to the left, broken between words
CLAIMS, TARGETS = "Claims of the paper", "Targets of this bench"
PUBLISHED_HEADER = ["row", "column", "metric", "value", "source"]
ABOUT_HEADER = ["of", "fact", "value"]


def show(table: Table, console: Console) -> None:
    """Print what a reader came for: the leading table, its notes, the worked examples and the verdicts. Details and the
    paper's other numbers are in the files."""
    console.print(Text(table.title, style="bold"))
    console.print(_pairs(table.facts.items()))
    columns, dropped, broken = _columns_that_fit(table.lead, console.width)
    console.print(_rich(table.lead, columns, broken))
    if dropped:
        console.print(Text(f"Not enough room for: {', '.join(dropped)}; table.md has every column.", "bright_black"))
    for note in table.notes:
        console.print(Text(note, style="bright_black"))
    if elsewhere := _elsewhere(table):
        console.print(Text(f"In table.md: {elsewhere}.", style="bright_black"))
    for place, example in enumerate(table.examples, 1):
        console.print(Text(f"\nExample {place}", style="bold"))
        console.print(_pairs((*example.given.items(), *example.outputs.items())))
    show_verdicts(table.verdicts, console)


def show_verdicts(verdicts: Verdicts, console: Console) -> None:
    """One line per claim of the paper and per target of the bench, and the commands that would settle what is open."""
    for heading, group in ((CLAIMS, verdicts.claims), (TARGETS, verdicts.targets)):
        if not group:
            continue
        console.print(Text(f"\n{heading}", style="bold"))
        grid = RichTable(box=None, show_header=False, pad_edge=False)
        grid.add_column(no_wrap=True)
        grid.add_column()
        here, elsewhere = told(group)
        for verdict in here:
            grid.add_row(Text(verdict.outcome, COLOURS[verdict.outcome]), Text(verdict.sentence))
        if here:
            console.print(grid)
        if elsewhere:
            console.print(Text(elsewhere, "bright_black"))
    for command in _commands(verdicts):
        console.print(Text(f"To settle: {command}", style="bright_black"), soft_wrap=True)


def _commands(verdicts: Verdicts) -> list[str]:
    """What would settle the verdicts that are shown."""
    shown = (verdict for group in (verdicts.claims, verdicts.targets) for verdict in told(group)[0])
    return list(dict.fromkeys(verdict.command for verdict in shown if verdict.command))


def show_summary(judged: Sequence[tuple[str, Verdicts]], console: Console) -> None:
    """One line for each recipe of a run: how many of its claims and targets hold, do not hold, stay open."""
    grid = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for head in ("recipe", CLAIMS, TARGETS):
        grid.add_column(head)
    for name, verdicts in judged:
        grid.add_row(name, *(_counted(group) for group in (verdicts.claims, verdicts.targets)))
    console.print(grid)


def _counted(group: Sequence[Verdict]) -> Text:
    """`holds: 2, does not hold: 1`, of those that stand at this scale."""
    here, elsewhere = told(group)
    counts = Counter(verdict.outcome for verdict in here)
    parts = [Text(f"{outcome}: {counts[outcome]}", colour) for outcome, colour in COLOURS.items() if counts[outcome]]
    return Text(", ").join(parts) if parts else Text("none at this scale" if elsewhere else "none", "bright_black")


def markdown(table: Table) -> str:
    """The table as a Markdown page."""
    parts = [f"# {table.title}", "\n".join(f"- {name}: {text}" for name, text in table.facts.items())]
    parts += _markdown_grid(table.lead)
    judged = table.verdicts
    for heading, word, group in ((CLAIMS, "claim", judged.claims), (TARGETS, "target", judged.targets)):
        if group:
            here, elsewhere = told(group)
            lines = [[v.outcome, v.sentence] for v in here]
            parts.append(f"## {heading}")
            parts += [markdown_table(["verdict", word], lines)] * bool(lines) + [elsewhere] * bool(elsewhere)
    parts += [f"To settle: `{command}`" for command in _commands(judged)]
    if table.notes:
        parts += ["## Notes", "\n".join(f"- {note}" for note in table.notes)]
    if table.examples:
        parts.append("## Examples")
    for place, example in enumerate(table.examples, 1):
        lines = [[label, text] for label, text in (*example.given.items(), *example.outputs.items())]
        parts.append(markdown_table([str(place), ""], lines))
    if table.details.header:
        parts += ["## Details", *_markdown_grid(table.details)]
    if table.about:
        parts += ["## Task and models", markdown_table(ABOUT_HEADER, [list(line) for line in table.about])]
    if table.published_only:
        parts += ["## Published only", markdown_table(PUBLISHED_HEADER, table.published_only)]
    return "\n\n".join(parts) + "\n"


def as_csv(table: Table) -> str:
    """The records as CSV: raw numbers, one line per cell, empty where a cell lacks a number."""
    names = list(dict.fromkeys(name for record in table.records for name in record))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(table.records)
    return text.getvalue()


def write(table: Table, folder: Path) -> list[Path]:
    """Write `table.md` and `table.csv`, each whole or not at all. Raises `MachineError` when the disk is full."""
    files = {folder / "table.md": markdown(table), folder / "table.csv": as_csv(table)}
    for path, text in files.items():
        write_atomically(path, text)
    return list(files)


def _columns_that_fit(table: Grid, width: int) -> tuple[list[int], list[str], bool]:
    """Positions of the columns to show in a terminal this wide, names of those left out, and whether intervals go to a
    second line. What a verdict needs least goes first; of the metrics the last."""
    lines = [line for section in table.sections for line in section.lines]
    kept = [i for i in range(len(table.header)) if i != 1 or any(line[1] for line in lines)]
    texts = [[table.header[i], *(line[i] for line in lines)] for i in range(len(table.header))]
    if sum(max(map(len, texts[i])) + 3 for i in kept) <= width:
        return kept, [], False
    needs = [
        max(len(part) for text in column for part in (text.split() if column[0] in WORDS else text.split(" [")))
        for column in texts
    ]
    needs = [max(need, *map(len, table.header[i].replace("_", " ").split())) + 3 for i, need in enumerate(needs)]
    metrics = [name for name in table.header[3:] if name not in (*WORDS, *DISPENSABLE, "paper", "speedup")]
    dropped = []
    for name in [*DISPENSABLE, *reversed(metrics)]:
        if sum(needs[i] for i in kept) > width and name in table.header and not name.startswith("speedup"):
            place = table.header.index(name)
            with_paper = table.header[place + 1 : place + 2] == ["paper"]
            kept = [i for i in kept if i != place and not (with_paper and i == place + 1)]
            dropped.append(name)
    return kept, dropped, True


def _rich(table: Grid, columns: list[int], broken: bool) -> RichTable:
    rich = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))
    for i in columns:
        header = table.header[i]
        words = header in WORDS
        rich.add_column(escape(header.replace("_", " ") if broken else header), justify="left" if words else "right")
    for section in table.sections:
        if section.heading:
            rich.add_section()
            rich.add_row(Text(section.heading, style="bright_black"))
        for line in section.lines:
            rich.add_row(*(_coloured(line[i].replace(" [", "\n[") if broken else line[i]) for i in columns))
    return rich


def _coloured(cell: str) -> Text:
    return Text(cell, style=CELL_COLOURS.get(cell, ""))


def _pairs(lines: Iterable[tuple[str, str]]) -> RichTable:
    """Labels in grey, and to the right of each its text."""
    grid = RichTable(box=None, show_header=False, pad_edge=False)
    grid.add_column(style="bright_black", no_wrap=True)
    grid.add_column()
    for label, text in lines:
        grid.add_row(Text(label), Text(text))
    return grid


def _elsewhere(table: Table) -> str:
    """What the Markdown page has and the terminal does not."""
    parts = ["details"] * bool(table.details.header) + ["task and models"] * bool(table.about)
    parts += [f"{len(table.published_only)} published numbers without a measured one"] * bool(table.published_only)
    return ", ".join(parts)


def _markdown_grid(grid: Grid) -> list[str]:
    parts = []
    for section in grid.sections:
        parts += [f"**{section.heading}**"] * bool(section.heading)
        parts.append(markdown_table(grid.header, section.lines))
    return parts


def markdown_table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A Markdown table; the cells' own bars and line breaks are kept out of its way."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

    return "\n".join([line(header), line(["---"] * len(header)), *map(line, lines)])
