"""Numbers in the documentation, filled in from committed rows; and the rows' own tables and figures.

    python -m harness.publish.docs      writes what is stale between marks of README.md and docs/, tables and figures

    <!-- table l2s-table1 small rows="* / 2x200 LSTM" columns="precision@1|speedup" --> ... <!-- end -->
    <!-- value knnlm-wikitext small cell="kNN-LM / FoSS=0.6" metric=saved_share --> ... <!-- end -->
    <!-- verdicts iad-table1 small --> ... <!-- end -->
    <!-- overview --> ... <!-- end -->

`rows` is a pattern of cells (several: separated by `|`); `columns` are heads of the leading table or of the details,
without arrows and without the baseline; the paper's column comes along with the one that it stands next to. A row that
has not been measured is left out. `digits` of a value: significant ones, without its interval. `over` of a value:
another cell, whose method's time is divided by this one's, in the processes that both share. `docs/overview.svg` is
drawn from the same rows, and `table.md`, `table.csv` and the figure next to committed rows are written again, so that
they look as today's code makes them.
"""

from __future__ import annotations

import re
import shlex
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from harness.common.errors import HarnessError, RequestError, unknown
from harness.common.files import write_atomically
from harness.common.sources import ROOT
from harness.contracts.tasks import SCALES
from harness.groups import paired
from harness.plan.registry import Registry
from harness.show import claims, figure, forest, frame, markup, overview, stored, tables
from harness.show.formats import number, with_interval
from harness.show.markup import markdown_table
from harness.show.overview import matches
from harness.show.stored import Stored
from harness.show.tables import EARLIER, SETTING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_START = r"<!-- (table|value|verdicts|overview)( [^>]*?)? -->"
BLOCK = re.compile(rf"({_START})((?:(?!<!-- (?:table|value|verdicts|overview)\b).)*?)(<!-- end -->)", re.DOTALL)
LABELS = ("row", "column")
FIGURE = ROOT / "docs" / "overview.svg"
Options = Mapping[str, str]


def filled(text: str, results: Path, where: str = "text") -> str:
    """The text with every block filled from the committed rows under `results`.

    Raises `RequestError` naming the block that asks for what is not there.
    """
    if not text.count("<!-- end -->") == len(re.findall(_START, text)) == len(BLOCK.findall(text)):
        left = BLOCK.sub(lambda block: "\n" * block[0].count("\n"), text)
        line = left.partition("<!--")[0].count("\n") + 1
        kinds = ", ".join(KINDS)
        raise RequestError(f"{where} line {line}: a mark without its `<!-- end -->`, or of a kind other than {kinds}")

    def fill(found: re.Match[str]) -> str:
        start, kind, arguments, _, end = found.groups()
        parts = shlex.split(arguments or "")
        options = dict(part.split("=", 1) for part in parts if "=" in part)
        try:
            made = KINDS[kind](results, [part for part in parts if "=" not in part], options)
        except HarnessError as error:
            line = text[: found.start()].count("\n") + 1
            raise RequestError(f"{where} line {line}: {error}") from error
        return f"{start}{made}{end}" if kind == "value" else f"{start}\n\n{made}\n\n{end}"

    return BLOCK.sub(fill, text)


@cache
def committed(results: Path) -> tuple[dict[tuple[str, str], Stored], pd.DataFrame]:
    """All committed rows by recipe and scale, and their frame, read once.

    Raises `RequestError` for what cannot be read: nothing is published without it.
    """
    registry = Registry()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        try:
            every = stored.stored(results, registry, (stored.MEASURED,))
        except UserWarning as left_out:
            raise RequestError(str(left_out)) from None
    return {(one.recipe.name, one.scale): one for one in every}, frame.of_all(every, registry)


def _one(results: Path, names: Sequence[str]) -> Stored:
    recipe, scale = names
    if scale not in SCALES:
        raise unknown("scale", scale, SCALES)
    found = {name: one for (name, at), one in committed(results)[0].items() if at == scale}
    if recipe not in found:
        raise unknown("recipe", recipe, found, f"with committed rows at scale {scale}")
    return found[recipe]


def _table_of(one: Stored, results: Path) -> tables.Table:
    return tables.build(one, frame.part(committed(results)[1], one), claims.verdicts(one))


def _table(results: Path, names: Sequence[str], options: Options) -> str:
    made = _table_of(_one(results, names), results)
    grid = made.lead[made.lead.index.get_level_values(0).isin(["", EARLIER])]
    ran = grid.iloc[:, 2] != "not run"
    if not made.details.empty:
        grid = pd.concat([grid, made.details.reindex(grid.index).iloc[:, 2:]], axis=1)
    if "columns" not in options:
        raise RequestError("a table names its columns")
    wanted = [name.strip() for name in options["columns"].split("|")]
    asked = [name for name in LABELS if name not in wanted] + wanted
    places = _with_paper(list(grid), [_place(list(grid), name) for name in asked], len(made.lead.columns))
    shown = [matches(cell, options.get("rows", "*")) for _, cell in grid.index]
    grid = grid[ran & pd.Series(shown, grid.index)].iloc[:, places]
    if grid.empty:
        raise RequestError(f"no row of {names[0]} is called {options.get('rows', '*')}")
    kept = [head != "column" or grid["column"].nunique() > 1 for head in grid]
    grid = grid.loc[:, kept].fillna("")
    return markdown_table(list(grid), grid.to_numpy().tolist())


def _place(heads: Sequence[str], name: str) -> int:
    """Where a column is, by its head without arrow and baseline."""

    def plain(head: str) -> str:
        return head.replace("_", " ").rstrip(" ↑↓").strip()

    for place, head in enumerate(map(plain, heads)):
        if plain(name) in (head, head.partition(" vs ")[0]):
            return place
    raise unknown("column", name, heads)


def _with_paper(heads: Sequence[str], places: Sequence[int], lead: int) -> list[int]:
    """The places with those of the paper's numbers next to them, and then of where these are from. lead: how many
    columns the leading table has."""
    found: list[int] = []
    for place in places:
        found.append(place)
        if heads[place + 1 : place + 2] == ["paper"] and place + 1 not in places:
            found.append(place + 1)
    here = range(lead) if found[-1] < lead else range(lead, len(heads))
    settings = [place for place in here if heads[place] == SETTING and place not in found]
    return found + settings * any(heads[place] == "paper" for place in found)


def _value(results: Path, names: Sequence[str], options: Options) -> str:
    rows = {row.cell: row for row in _one(results, names).rows}
    if options.get("cell") not in rows:
        raise unknown("cell", options.get("cell", ""), rows, names[0])
    row, metric = rows[options["cell"]], options.get("metric", "speedup")
    if "over" in options:
        if (found := paired(row, rows[options["over"]])) is None:
            raise RequestError(f"{row.cell} and {options['over']} were not timed in the same processes")
        return with_interval(found.speedup, found.interval)
    value = row.value(metric)
    if value is None:
        raise unknown("metric", metric, row.numbers, row.cell)
    if "digits" in options:
        return number(value, int(options["digits"]))
    return with_interval(value, row.interval_of(metric))


def _verdicts(results: Path, names: Sequence[str], options: Options) -> str:
    judged = claims.verdicts(_one(results, names))
    groups = {"claims": judged.claims, "targets": judged.targets}
    lines: list[str] = []
    for name in [options["of"]] if "of" in options else groups:
        here, elsewhere = claims.told(groups[name])
        lines += [f"- **{verdict.outcome}**: {verdict.sentence}" for verdict in here]
        lines += [f"- {elsewhere}"] * bool(elsewhere)
    return "\n".join(lines)


def _overview(results: Path, names: Sequence[str], options: Options) -> str:
    if names or options:
        raise RequestError("the overview has no options: all of it is shown")
    lines = overview.overview(committed(results)[1])
    return markdown_table(overview.HEADER, overview.table(lines))


KINDS: Mapping[str, Callable[[Path, Sequence[str], Options], str]] = {
    "table": _table, "value": _value, "verdicts": _verdicts, "overview": _overview,
}  # fmt: skip


def texts(pages: Sequence[Path], results: Path) -> Iterator[tuple[Path, str]]:
    """Path and text of everything that is text: the first picture, pages, tables of committed rows."""
    every, numbers = committed(results)
    yield FIGURE, forest.draw(forest.lines(numbers)).decode()
    for path in pages:
        yield path, filled(path.read_text(encoding="utf-8"), results, str(path))
    for one in every.values():
        table = _table_of(one, results)
        yield _folder(one, results) / "table.md", markup.markdown(table)
        yield _folder(one, results) / "table.csv", markup.as_csv(table)


def figures(results: Path) -> Iterator[tuple[Path, Figure]]:
    """Path, without its ending, and figure of every committed recipe that has one."""
    every, numbers = committed(results)
    for one in every.values():
        if (drawn := figure.drawing(one, frame.part(numbers, one))) is not None:
            yield _folder(one, results) / "figure", drawn


def _folder(one: Stored, results: Path) -> Path:
    return results / stored.MEASURED / one.recipe.name / one.scale


def pages() -> list[Path]:
    """README and the pages under docs/."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def main(arguments: Sequence[str]) -> None:
    """Write every stale file, and print which these are. Raises `RequestError` for an argument: there is none."""
    if arguments:
        raise RequestError(f"unknown argument {arguments[0]!r}: every page is filled")
    results = ROOT / "results"
    stale = []
    for path, after in texts(pages(), results):
        if not path.exists() or path.read_text(encoding="utf-8") != after:
            write_atomically(path, after)
            stale.append(path)
    for path, drawn in figures(results):
        after_bytes, svg = figure.as_bytes(drawn, "svg"), path.with_suffix(".svg")
        if not svg.exists() or svg.read_bytes() != after_bytes:
            write_atomically(svg, after_bytes)
            write_atomically(path.with_suffix(".png"), figure.as_bytes(drawn, "png"))
            stale.append(svg)
    if stale:
        print(f"filled: {', '.join(map(str, stale))}")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except HarnessError as error:
        sys.exit(f"error: {error}")
