"""All rows on disk, by recipe and scale: committed ones, other people's, and this folder's runs.

One kind of rows leads a recipe's table, figure and verdicts: this folder's runs where they are whole, else the
committed rows, else another person's. Rows of the other kinds are shown apart, whatever machine they are of.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from harness.common.errors import HarnessError, RequestError
from harness.contracts.rows import Row
from harness.contracts.tasks import SCALES, Scale
from harness.measure.store import RowStore
from harness.plan import expansion
from harness.plan import recipe as recipes
from harness.plan.cell import Cell
from harness.plan.recipe import Recipe
from harness.plan.registry import Registry
from harness.show.report import claims, published, tables
from harness.show.report.claims import Verdicts
from harness.show.report.layout import Layout
from harness.show.report.published import Published
from harness.show.report.selection import by_machine, machine_of
from harness.show.report.tables import Table

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")
MEASURED, REPRODUCED, RUNS = "measured", "reproduced", "runs"  # folders of results
KINDS = (MEASURED, REPRODUCED, RUNS)
Kinds = dict[str, list[Row]]  # kind -> its rows


@dataclass(frozen=True, slots=True)
class Stored:
    """What is stored of one recipe at one scale. rows: oldest first. cells: what the recipe expands to today. machine:
    of the rows that lead (`selection.machine_of`)."""

    recipe: Recipe
    scale: Scale
    rows: list[Row] = field(repr=False)
    cells: list[Cell] = field(repr=False)
    numbers: Published = field(repr=False)
    machine: str | None = None

    @property
    def command(self) -> str:
        """What a reader types to measure it again, with the parameters of the recipe."""
        if self.recipe.paper:
            return f"./reproduce.sh {self.recipe.name} --scale {self.scale}"
        pair = self.cells[-1]
        return f"harness run {pair.method.name} {pair.task.name} --scale {self.scale}"

    def newest(self) -> list[Row]:
        """The newest row of each cell, with its repeats, of those that lead."""
        return next(iter(by_machine(self.rows, self.recipe.name, self.scale, self.machine).values()), [])

    def layout(self) -> Layout:
        """Columns of its tables, and the published numbers next to its rows."""
        return Layout(self.recipe, self.scale, self.numbers, self.cells, self.newest())

    def verdicts(self) -> Verdicts:
        """The judgement of the recipe's claims and targets."""
        return claims.verdicts(self.recipe, self.scale, self.cells, self.rows, self.machine)

    def table(self) -> Table:
        """Measured next to published."""
        return tables.build(
            self.recipe, self.scale, self.rows, self.numbers, cells=self.cells, machine=self.machine,
            verdicts=self.verdicts(),
        )  # fmt: skip


def stored(results: Path, registry: Registry, kinds: Sequence[str] = KINDS) -> list[Stored]:
    """All recipes that have rows under `results`, by name, larger scales first.

    A row or a file that cannot be read, and a recipe that is no longer there, are left out with one warning each.
    """
    found: dict[tuple[str, str], Kinds] = {}
    for kind in kinds:
        for path in _files(results, kind):
            name, scale = path.parts[-3:-1]
            if rows := _read(path):
                found.setdefault((name, scale), {}).setdefault(kind, []).extend(rows)
    order = sorted(found, key=lambda key: (key[0], -SCALES.index(key[1])))
    every = (
        _tried(lambda name=name, scale=scale: _one(name, scale, found[name, scale], registry))  # type: ignore[misc]
        for name, scale in order
    )
    return [one for one in every if one is not None]


def of(name: str, scale: Scale, results: Path, registry: Registry, kinds: Sequence[str] = KINDS) -> Stored:
    """One recipe, by its name or its file's path, at one scale. Raises `RequestError` when it has no rows, or
    none that can be read."""
    recipe = recipes.load(name, registry) if name.endswith((".yaml", ".yml")) else None
    folder = recipe.name if recipe else name
    rows = {kind: rows_of(folder, scale, results, (kind,)) for kind in kinds}
    if not any(rows.values()):
        recipes.load(name, registry)  # an unknown name is refused as such
        for path in _paths(folder, scale, results, kinds):
            RowStore(path).rows()  # says why none of them can be read
        raise RequestError(
            f"nothing is stored of {name} at scale {scale} in {results}: run `harness reproduce {name} --scale {scale}`"
        )
    return _one(folder, scale, {kind: found for kind, found in rows.items() if found}, registry, recipe)


def rows_of(name: str, scale: Scale, results: Path, kinds: Sequence[str] = KINDS) -> list[Row]:
    """All rows of one recipe at one scale, by kind; those that cannot be read are left out with a warning."""
    return [row for path in _paths(name, scale, results, kinds) for row in _read(path)]


def frame(results: Path | str = "results", kinds: Sequence[str] = KINDS) -> pd.DataFrame:
    """All stored rows as a table of numbers, one line per cell and machine, as in `table.csv`.

    results: a folder with `measured`, `reproduced` or `runs` in it. Columns: labels, status, decision, each metric with
    its 95% interval (`NAME_low`, `NAME_high`) and the published number next to it (`NAME_published`). Empty when there
    are no rows.
    """
    return as_frame([one.table() for one in stored(Path(results), Registry(), kinds)])


def as_frame(tables: Sequence[Table]) -> pd.DataFrame:
    """The records of tables as one `frame`."""
    import pandas as pd

    return pd.DataFrame.from_records([record for table in tables for record in table.records])


def _one(name: str, scale: Scale, rows: Kinds, registry: Registry, recipe: Recipe | None = None) -> Stored:
    every = [row for found in rows.values() for row in found]
    pair = next(
        ((r["method"], r["task"]) for r in every if name == expansion.single_name(r["method"], r["task"])), None
    )
    if pair is not None:  # of `harness run`
        recipe, cells = expansion.single(*pair, scale, registry, {})
    else:
        recipe = recipe or recipes.load(name, registry)
        cells = expansion.expand(recipe, scale, registry)
    lead = _lead(rows, {cell.name for cell in cells})
    told = [_told(row, kind) if kind != lead else row for kind, found in rows.items() for row in found]
    told.sort(key=lambda row: row["started"] or "")
    newest = max(rows[lead], key=lambda row: row["started"] or "")
    return Stored(recipe, scale, told, cells, published.of(recipe), machine_of(newest))


def _lead(rows: Kinds, planned: set[str]) -> str:
    """The kind that leads: runs where every planned cell has finished on one machine, else the first there is."""
    if found := rows.get(RUNS):
        last = machine_of(max(found, key=lambda row: row["started"] or ""))
        done = {row["cell"] for row in found if row["status"] in ("ok", "skipped") and machine_of(row) == last}
        if planned <= done or len(rows) == 1:
            return RUNS
    return next(kind for kind in KINDS if kind in rows)


def _told(row: Row, kind: str) -> Row:
    """The row with its kind in its environment, which tells it from those that lead."""
    return {**row, "environment": {**row["environment"], "kind": kind}}


def _files(results: Path, kind: str) -> Iterator[Path]:
    below = "*/*/*" if kind == REPRODUCED else "*/*"  # a folder for each person and day
    for path in sorted((results / kind).glob(f"{below}/rows.jsonl")):
        if path.parts[-2] in SCALES:
            yield path


def _paths(name: str, scale: Scale, results: Path, kinds: Sequence[str]) -> list[Path]:
    return [path for kind in kinds for path in _files(results, kind) if path.parts[-3:-1] == (name, scale)]


def _read(path: Path) -> list[Row]:
    return _tried(RowStore(path).legible_rows) or []


def _tried(read: Callable[[], T]) -> T | None:
    try:
        return read()
    except HarnessError as error:
        warnings.warn(f"left out: {error}", stacklevel=2)
        return None
