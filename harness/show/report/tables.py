"""Rows, a recipe and published numbers -> one table: measured next to published, with what a reader must know of both.

`build` makes the table as plain text cells and as records for a CSV; `harness.show.report.render` prints and writes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.contracts.rows import Row
from harness.contracts.tasks import Scale
from harness.plan.cell import Cell
from harness.plan.recipe import Recipe
from harness.show.report.claims import Verdicts
from harness.show.report.context import about, facts, machine_line, notes
from harness.show.report.formats import NOTHING
from harness.show.report.layout import Column, Layout
from harness.show.report.published import Published
from harness.show.report.selection import by_machine

EARLIER = "Measured when the recipe had other rows: labels and settings are those of then"
OUTPUT = "output"  # the label of a worked example's text that is the row's own


@dataclass(frozen=True, slots=True)
class Section:
    """Lines of one machine. `heading` is empty for the machine that the report is about."""

    heading: str
    lines: list[list[str]]


@dataclass(frozen=True, slots=True)
class Grid:
    """A head and the lines below it, by machine."""

    header: list[str]
    sections: list[Section]


@dataclass(frozen=True, slots=True)
class Example:
    """One worked example: what it is about (label -> text), and what each row made of it (cell -> text)."""

    given: dict[str, str]
    outputs: dict[str, str]


@dataclass(frozen=True, slots=True)
class Table:
    """A finished table. `facts` (what -> text) stand above it, `notes` are sentences for below.

    lead: what a reader came for: qualities, speedup, decision, the paper's numbers. details: everything else of the
    same cells; its header is empty where there is nothing. about: what the task and its models are, as
    (where it holds, name, value).
    """

    title: str
    facts: dict[str, str]
    lead: Grid
    details: Grid
    about: list[tuple[str, str, str]]
    notes: list[str]
    published_only: list[list[str]]  # row, column, metric, value, source
    verdicts: Verdicts
    examples: list[Example]
    records: list[dict[str, Any]] = field(repr=False)  # raw numbers, one record per line, for the CSV


def build(
    recipe: Recipe, scale: Scale, rows: Sequence[Row], published: Published, *,
    cells: Sequence[Cell] = (), machine: str | None = None, verdicts: Verdicts | None = None,
) -> Table:  # fmt: skip
    """The table of one recipe at one scale.

    rows: oldest first, of any recipe, scale and machine; the newest of each cell at this scale counts. cells: what
    the recipe expands to; those without a row are shown as not run, and they say which published cell a row stands
    next to. machine: whose rows the report is about
    (`environment.machine_id`), by default that of the newest row; rows of other machines follow apart.
    """
    names = [cell.name for cell in cells]
    machines = [_in_order(group, names) for group in by_machine(rows, recipe.name, scale, machine).values()]
    ours = machines[0] if machines else []
    layout = Layout(recipe, scale, published, cells, [row for group in machines for row in group])
    return Table(
        title=f"{recipe.name}, scale {scale}: {recipe.title}",
        facts=facts(recipe, scale, ours, of_today=not cells or any(row["cell"] in names for row in ours)),
        lead=_grid(layout.lead, machines, cells, blanks=True),
        details=_grid(layout.detail, machines, cells, blanks=False),
        about=about(ours),
        notes=notes(ours, layout.used, layout.one_setting, comparable_data=layout.data_of_paper) + layout.directions(),
        published_only=layout.unmatched(),
        verdicts=verdicts or Verdicts(),
        examples=_examples(ours),
        records=[layout.record(row) for group in machines for row in group],
    )


def _grid(columns: Sequence[Column], machines: Sequence[Sequence[Row]], planned: Sequence[Cell], blanks: bool) -> Grid:
    """The lines of every machine's rows, those of cells that the recipe no longer has apart. blanks: whether planned
    cells without a row on the first machine are said not to have run."""
    if not columns:
        return Grid([], [])
    rows = machines[0] if machines else []
    ours = {row["cell"]: _line(columns, row) for row in rows}
    order = [cell.name for cell in planned] or list(ours)
    of_today = not ours or any(name in ours for name in order)  # else it has not been measured as it is now
    lacking = [cell for cell in planned if blanks and of_today and cell.name not in ours]
    every = ours | {cell.name: _blank(columns, cell.row, cell.column, "not run") for cell in lacking}
    sections = [Section("", [every[name] for name in order if name in every])]
    if earlier := [line for name, line in ours.items() if name not in order]:
        sections.append(Section(EARLIER, earlier))
    sections += [
        Section(f"Measured apart, times not comparable: {machine_line(group)}", [_line(columns, row) for row in group])
        for group in machines[1:]
    ]
    return Grid([column.head for column in columns], sections)


def _line(columns: Sequence[Column], row: Row) -> list[str]:
    if row["status"] != "ok":
        return _blank(columns, row["row"], row["column"], row["status"].upper())
    return [column.cell(row) for column in columns]


def _blank(columns: Sequence[Column], row: str, column: str, status: str) -> list[str]:
    """The line of a cell without results."""
    return [row, column, status, *[NOTHING] * (len(columns) - 3)]


def _examples(rows: Sequence[Row]) -> list[Example]:
    """The rows' worked examples, those of the same matter together."""
    found: dict[tuple[tuple[str, str], ...], Example] = {}
    for row in rows:
        for example in row["examples"] or ():
            given = {label: text for label, text in example.items() if label != OUTPUT}
            together = found.setdefault(tuple(given.items()), Example(given, {}))
            if OUTPUT in example:
                together.outputs[row["cell"]] = example[OUTPUT]
    return list(found.values())


def _in_order(rows: Sequence[Row], names: Sequence[str]) -> list[Row]:
    place = {name: position for position, name in enumerate(names)}
    return sorted(rows, key=lambda row: place.get(row["cell"], len(place)))
