"""All rows on disk, by recipe and scale: those of this machine's runs and the committed ones."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from harness.contracts.rows import Row
from harness.contracts.tasks import SCALES, Scale
from harness.errors import HarnessError, RequestError
from harness.measure.store import RowStore
from harness.plan import expansion
from harness.plan import recipe as recipes
from harness.plan.cell import Cell
from harness.plan.recipe import Recipe
from harness.plan.registry import Registry
from harness.show.keep import REPRODUCED
from harness.show.report import claims, published, tables
from harness.show.report.claims import Verdicts
from harness.show.report.layout import Layout
from harness.show.report.published import Published
from harness.show.report.selection import by_machine
from harness.show.report.tables import Table

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")
KINDS = ("measured", "reproduced", "runs")  # folders of results: committed rows, other people's, this machine's


@dataclass(frozen=True, slots=True)
class Stored:
    """What is stored of one recipe at one scale. rows: oldest first. cells: what the recipe expands to today."""

    recipe: Recipe
    scale: Scale
    rows: list[Row] = field(repr=False)
    cells: list[Cell] = field(repr=False)
    numbers: Published = field(repr=False)

    @property
    def command(self) -> str:
        """What a reader types to measure it again."""
        return f"./reproduce.sh {self.recipe.name} --scale {self.scale}"

    def newest(self) -> list[Row]:
        """The newest row of each cell, with its repeats, on the machine that measured last."""
        return next(iter(by_machine(self.rows, self.recipe.name, self.scale).values()), [])

    def layout(self) -> Layout:
        """Columns of its tables, and the published numbers next to its rows."""
        return Layout(self.recipe, self.scale, self.numbers, self.cells, self.newest())

    def verdicts(self) -> Verdicts:
        """The judgement of the recipe's claims and targets."""
        return claims.verdicts(self.recipe, self.scale, self.cells, self.rows)

    def table(self) -> Table:
        """Measured next to published."""
        return tables.build(
            self.recipe, self.scale, self.rows, self.numbers, cells=self.cells, verdicts=self.verdicts()
        )


def stored(results: Path, registry: Registry, kinds: Sequence[str] = KINDS) -> list[Stored]:
    """All recipes that have rows under `results`, by name, larger scales first.

    A file that cannot be read, or of a recipe that is no longer there, is left out with one warning.
    """
    found: dict[tuple[str, str], list[Row]] = {}
    for path in _files(results, kinds):
        name, scale = path.parts[-3:-1]
        if (rows := _tried(lambda path=path: RowStore(path).rows())) is not None:  # type: ignore[misc]
            found.setdefault((name, scale), []).extend(rows)
    order = sorted(found, key=lambda key: (key[0], -SCALES.index(key[1])))
    every = (
        _tried(lambda name=name, scale=scale: _one(name, scale, found[name, scale], registry))  # type: ignore[misc]
        for name, scale in order
        if found[name, scale]
    )
    return [one for one in every if one is not None]


def of(name: str, scale: Scale, results: Path, registry: Registry, kinds: Sequence[str] = KINDS) -> Stored:
    """One recipe at one scale. Raises `RequestError` when it has no rows, or for rows that cannot be read."""
    rows = rows_of(name, scale, results, kinds)
    if not rows:
        recipes.load(name, registry)  # an unknown name is refused as such
        raise RequestError(
            f"nothing is stored of {name} at scale {scale} in {results}: run `harness reproduce {name} --scale {scale}`"
        )
    return _one(name, scale, rows, registry)


def rows_of(name: str, scale: Scale, results: Path, kinds: Sequence[str] = KINDS) -> list[Row]:
    """All rows of one recipe at one scale, by kind. Raises `RequestError` for rows that cannot be read."""
    return [
        row for path in _files(results, kinds) if path.parts[-3:-1] == (name, scale) for row in RowStore(path).rows()
    ]


def frame(results: Path | str = "results", kinds: Sequence[str] = KINDS) -> pd.DataFrame:
    """All stored rows as a table of numbers, one line per cell and machine, as in `table.csv`.

    results: a folder with `measured` or `runs` in it. Columns: labels, status, decision, each metric with its 95%
    interval (`NAME_low`, `NAME_high`) and the published number next to it (`NAME_published`). Empty when there are no
    rows.
    """
    import pandas as pd

    records = [record for one in stored(Path(results), Registry(), kinds) for record in one.table().records]
    return pd.DataFrame.from_records(records)


def _one(name: str, scale: Scale, rows: Sequence[Row], registry: Registry) -> Stored:
    pair = next(((r["method"], r["task"]) for r in rows if name == expansion.single_name(r["method"], r["task"])), None)
    if pair is not None:  # of `harness run`
        recipe, cells = expansion.single(*pair, scale, registry, {})
    else:
        recipe = recipes.load(name, registry)
        cells = expansion.expand(recipe, scale, registry)
    return Stored(recipe, scale, sorted(rows, key=lambda row: row["started"] or ""), cells, published.of(recipe))


def _files(results: Path, kinds: Sequence[str]) -> Iterator[Path]:
    for kind in kinds:
        below = "*/*/*" if kind == REPRODUCED else "*/*"  # a folder for each person and day
        for path in sorted((results / kind).glob(f"{below}/rows.jsonl")):
            if path.parts[-2] in SCALES:
                yield path


def _tried(read: Callable[[], T]) -> T | None:
    try:
        return read()
    except HarnessError as error:
        warnings.warn(f"left out: {error}", stacklevel=2)
        return None
