"""All rows on disk, by recipe and scale: committed ones and this folder's runs.

One kind of rows leads a recipe's table, figure and verdicts: this folder's runs where they are whole, else the
committed rows. Rows of the other kind and of other machines are shown apart.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from harness.common.errors import HarnessError, RequestError
from harness.contracts.tasks import SCALES, Scale
from harness.groups import by_cell, with_one_baseline, with_times_of_baselines
from harness.machine import describe
from harness.measure.store import RowStore
from harness.plan import expansion
from harness.plan import recipe as recipes
from harness.plan.cell import Cell
from harness.plan.registry import Registry
from harness.plan.schema import Recipe
from harness.rows import Row
from harness.show import published
from harness.show.published import Number

T = TypeVar("T")
MEASURED, RUNS = "measured", "runs"  # folders of results
KINDS = (MEASURED, RUNS)
WORDS = {MEASURED: ", committed", RUNS: ", measured here"}


@dataclass(frozen=True)
class Stored:
    """What is stored of one recipe at one scale.

    cells: what the recipe expands to today. rows: the newest of each cell, of the kind and machine that lead, in the
    recipe's order. apart: rows of other kinds and machines, by words for both.
    """

    recipe: Recipe
    scale: Scale
    cells: Sequence[Cell] = field(repr=False)
    rows: Sequence[Row] = field(repr=False)
    apart: Mapping[str, Sequence[Row]] = field(repr=False, default_factory=dict)

    @property
    def title(self) -> str:
        return f"{self.recipe.name}, scale {self.scale}: {self.recipe.title}"

    @property
    def command(self) -> str:
        """What a reader types to measure it again, with the parameters of the recipe."""
        if self.recipe.paper:
            return f"./reproduce.sh {self.recipe.name} --scale {self.scale}"
        pair = self.cells[-1]
        return f"harness run {pair.method.name} {pair.task.name} --scale {self.scale}"

    @property
    def every(self) -> Iterator[tuple[str, Row]]:
        """All rows, with the words of those that are apart ("" for those that lead)."""
        for words, rows in {"": self.rows, **self.apart}.items():
            for row in rows:
                yield words, row

    @property
    def good(self) -> list[Row]:
        """The finished ones of all rows."""
        return [row for _, row in self.every if row.status == "ok"]

    @cached_property
    def numbers(self) -> Sequence[Number]:
        """The paper's numbers."""
        return published.of(self.recipe)


def gathered(
    recipe: Recipe, scale: Scale, cells: Sequence[Cell], rows: Mapping[str, Sequence[Row]], lead: str = "",
    machine: str = "",
) -> Stored:  # fmt: skip
    """What there is of a recipe, from its rows by kind. lead, machine: the kind and the machine whose rows lead; by
    default the first kind that is whole, and the machine that measured last."""
    lead = lead or _lead(rows, {cell.name for cell in cells})
    machine = machine or max(rows[lead], key=lambda row: row.started or "").machine if rows[lead] else machine
    groups: dict[tuple[str, str], list[Row]] = {(lead, machine): []}
    for kind, row in sorted(
        ((kind, row) for kind, found in rows.items() for row in found), key=lambda pair: pair[1].started or ""
    ):
        groups.setdefault((kind, row.machine), []).append(row)
    place = {cell.name: number for number, cell in enumerate(cells)}
    ordered = {
        key: sorted(
            with_times_of_baselines(with_one_baseline(by_cell(group).values())),
            key=lambda row: place.get(row.cell, len(place)),
        )
        for key, group in groups.items()
    }
    ours = ordered.pop((lead, machine))
    apart: dict[str, Sequence[Row]] = {}
    for (kind, other), group in ordered.items():
        words = place_of(group) + ("" if kind == lead else WORDS[kind])
        apart[f"{words} ({other})" if words in apart else words] = group  # the words leave out system and driver
    return Stored(recipe, scale, cells, ours, apart)


def place_of(rows: Sequence[Row]) -> str:
    """The machine of rows that share one, in words."""
    before = rows[-1].environment.get("before") or {}
    return describe(before) if before else "an unknown machine"


def stored(results: Path, registry: Registry, kinds: Sequence[str] = KINDS) -> list[Stored]:
    """All recipes that have rows under `results`, by name, larger scales first.

    A row or a file that cannot be read, and a recipe that is no longer there, are left out with one warning each.
    """
    names = {path.parts[-3:-1] for kind in kinds for path in _files(results, kind)}
    order = sorted(names, key=lambda key: (key[0], -SCALES.index(key[1])))
    every = (
        _tried(lambda name=name, scale=scale: _one(name, scale, results, registry, kinds))  # type: ignore[misc]
        for name, scale in order
    )
    return [one for one in every if one is not None]


def of(name: str, scale: Scale, results: Path, registry: Registry, kinds: Sequence[str] = KINDS) -> Stored:
    """One recipe, by its name or its file's path, at one scale. Raises `RequestError` when it has no rows, or
    none that can be read."""
    recipe = recipes.load(name, registry) if name.endswith((".yaml", ".yml")) else None
    folder = recipe.name if recipe else name
    if (found := _one(folder, scale, results, registry, kinds, recipe)) is not None:
        return found
    for kind in kinds:
        for path in _files(results, kind, folder, scale):
            RowStore(path).rows()  # says why none of them can be read
    recipes.load(name, registry)  # an unknown name is refused as such
    raise RequestError(
        f"nothing is stored of {name} at scale {scale} in {results}: run `harness reproduce {name} --scale {scale}`"
    )


def rows_of(name: str, scale: Scale, results: Path, kinds: Sequence[str]) -> dict[str, list[Row]]:
    """Kind -> all rows of one recipe at one scale; those that cannot be read are left out with a warning."""
    found = {
        kind: [row for path in _files(results, kind, name, scale) for row in _tried(RowStore(path).legible_rows) or []]
        for kind in kinds
    }
    return {kind: rows for kind, rows in found.items() if rows}


def _one(
    name: str, scale: Scale, results: Path, registry: Registry, kinds: Sequence[str], recipe: Recipe | None = None
) -> Stored | None:
    rows = rows_of(name, scale, results, kinds)
    if not rows:
        return None
    pairs = ((row.method, row.task) for found in rows.values() for row in found)
    pair = next((pair for pair in pairs if name == expansion.single_name(*pair)), None)
    if pair is not None:  # of `harness run`
        recipe, cells = expansion.single(*pair, scale, registry, {})
    else:
        recipe = recipe or recipes.load(name, registry)
        cells = expansion.expand(recipe, scale, registry)
    found = gathered(recipe, scale, cells, rows)
    _ = found.numbers  # a file of published numbers that is not there is refused here
    return found


def _lead(rows: Mapping[str, Sequence[Row]], planned: set[str]) -> str:
    """The kind that leads: runs where every planned cell has finished on one machine, else the first there is."""
    if found := rows.get(RUNS):
        last = max(found, key=lambda row: row.started or "").machine
        done = {row.cell for row in found if row.status in ("ok", "skipped") and row.machine == last}
        if planned <= done or len(rows) == 1:
            return RUNS
    return next(kind for kind in KINDS if kind in rows)


def _files(results: Path, kind: str, name: str = "*", scale: str = "*") -> Iterator[Path]:
    for path in sorted((results / kind).glob(f"{name}/{scale}/rows.jsonl")):
        if path.parts[-2] in SCALES:
            yield path


def _tried(read: Callable[[], T]) -> T | None:
    try:
        return read()
    except HarnessError as error:
        warnings.warn(f"left out: {error}", stacklevel=2)
        return None
