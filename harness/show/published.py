"""The numbers that papers print (`results/published`), and the only place where their units meet ours.

Format of the files: `results/published/README.md`.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.common.errors import RequestError, unknown
from harness.common.sources import ROOT
from harness.contracts.metrics import Metric
from harness.plan.schema import Recipe
from harness.rows import Row

SHARED = "share/shortcut-harness/published"
COLUMNS = ("table", "row", "column", "metric", "value", "unit", "note")

# A published name's ending says in which unit the number is; the factor leads to the base unit (seconds, bytes, a
# fraction).
_ENDINGS = {
    "_ms": 1e-3, "_us": 1e-6, "_s": 1.0, "_hours": 3600.0, "_days": 86400.0, "_pct": 0.01, "percent": 0.01,
    "_mib": 2.0**20, "_bytes": 1.0,
}  # fmt: skip
# Where the name says nothing, the unit column does; units missing here ("x", "tokens", ...) are base units already.
_UNITS = {
    "%": 0.01, "k bytes/entry": 1e3, "M tokens": 1e6, "B tokens": 1e9, "T tokens": 1e12,
    "GB": 1e9, "TB": 1e12, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40,
}  # fmt: skip
# A unit that a metric of ours declares -> the ending of its name that says the same, where the name ends so.
_OURS = {"s": "_s", "ms": "_ms", "µs": "_us", "h": "_hours", "bytes": "_bytes", "MiB": "_mib", "%": "_pct"}


@dataclass(frozen=True, slots=True)
class Number:
    """One published number. `text` is as printed, in `unit`; `value` is the same as a float."""

    file: str
    table: str
    row: str
    column: str
    metric: str
    text: str
    value: float
    unit: str
    note: str

    def as_measured(self, metric: Metric) -> float | None:
        """The value in the unit of our metric (81 % of `foss` -> 0.81, 12 of `latency_ms` -> 0.012 of `latency_s` in
        seconds); None when the two are different quantities. A metric of no declared unit has that of its name."""
        stem, factor = _split(self.metric)
        if not metric.unit and metric.name == self.metric and factor is not None:
            return self.value
        ending = _OURS.get(metric.unit, "")
        if stem != metric.name.removesuffix(ending):
            return None
        if factor is None:
            factor = _UNITS.get(self.unit, 1.0)
        per_unit = _ENDINGS.get(ending, 1.0)
        return self.value if factor == per_unit else self.value * factor / per_unit

    def place_next_to(self, row: Row) -> str:
        """Table and labels, as far as they are not the row's own: `Figure 3, WikiText-103` for the column
        `WikiText-103 / FoSS=0` next to a row with the column `FoSS=0`."""
        column = self.column.removesuffix(row.column).removesuffix(" / ")
        parts = [self.table, "" if self.row == row.row else self.row, column]
        return ", ".join(part for part in parts if part)


def lookup(numbers: Sequence[Number], row: str, column: str, metric: Metric) -> Number | None:
    """The number of the published cell with exactly these labels; None when there is none, or when two tables print
    different ones."""
    found = [n for n in numbers if (n.row, n.column) == (row, column) and n.as_measured(metric) is not None]
    return found[0] if len({n.as_measured(metric) for n in found}) == 1 else None


def comparable(metric: Metric, data_of_paper: bool) -> bool:
    """Whether measured / published means something: always for what is relative to the exact computation (speedups,
    precision@k), for other metrics only on the paper's data."""
    return data_of_paper or metric.relative


def published_folder() -> Path:
    """`results/published` of the checkout, of the working folder, or of the installed package.

    Raises `RequestError` naming the places looked at.
    """
    places = [ROOT / "results" / "published", Path("results/published").absolute()]
    for place in (*places, *(above / SHARED for above in ROOT.parents)):  # the last: of a wheel, above its packages
        if place.is_dir():
            return place
    raise RequestError(
        f"the published numbers are in neither {' nor '.join(map(str, places))} nor a {SHARED} above: install the "
        "package again, or run the command from the top folder of a checkout"
    )


def load(names: Sequence[str], folder: Path | None = None) -> list[Number]:
    """The numbers of files such as `retomaton/figure3.csv` (`.csv` may be left out).

    Raises `RequestError` for a file that does not exist (with the nearest that does) or a line that does not parse.
    """
    if not names:
        return []
    root = folder or published_folder()
    return [number for name in names for number in _read(root, name.removesuffix(".csv") + ".csv")]


def of(recipe: Recipe) -> list[Number]:
    """The recipe's published numbers, under our names for what they are (`published_as`)."""
    return [replace(n, metric=recipe.published_as.get(n.metric, n.metric)) for n in load(recipe.published)]


def _read(root: Path, name: str) -> list[Number]:
    file = root / name
    if not file.is_file():
        known = (f.relative_to(root).as_posix() for f in root.rglob("*.csv"))
        raise unknown("file of published numbers", name, known, str(root))
    numbers = []
    with file.open(encoding="utf-8", newline="") as lines:
        reader = csv.reader(lines)
        if tuple(next(reader, ())) != COLUMNS:
            raise RequestError(f"{file} line 1: the columns must be {', '.join(COLUMNS)}")
        for fields in filter(None, reader):  # blank lines are passed over
            try:
                table, row, column, metric, text, unit, note = fields
                numbers.append(Number(name, table, row, column, metric, text, float(text), unit, note))
            except ValueError as error:
                told = f"{len(COLUMNS)} fields with a number as value are expected ({error})"
                raise RequestError(f"{file} line {reader.line_num}: {told}") from None
    return numbers


def _split(metric: str) -> tuple[str, float | None]:
    """`latency_ms` -> (`latency`, 0.001): what is measured, and the factor its name states (None: none)."""
    for ending, factor in _ENDINGS.items():
        if metric.endswith(ending):
            return metric.removesuffix(ending), factor
    return metric, None
