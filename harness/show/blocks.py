"""Numbers in the documentation, filled in from committed rows; and the rows' own tables and figures.

    python -m harness.show.blocks README.md docs/results.md      writes what is between the marks, tables, figures
    python -m harness.show.blocks --check README.md              exit code 1 where something is stale

    <!-- table l2s-table1 small rows="* / 2x200 LSTM" columns="precision@1|speedup" --> ... <!-- end -->
    <!-- value knnlm-wikitext small cell="kNN-LM / FoSS=0.6" metric=saved_share --> ... <!-- end -->
    <!-- verdicts iad-table1 small --> ... <!-- end -->
    <!-- overview rows="l2s / *|iad* / conll-gec / *" --> ... <!-- end -->

`rows` is a pattern of cells (several: separated by `|`), in the overview of "method / task / baseline"; `columns` are
heads of the leading table or of the details, without arrows and without the baseline; the paper's column comes along
with the one that it stands next to. A row that has not been measured is left out. `digits` of a value: significant
ones, without its interval. `docs/overview.svg` is drawn from the same rows, and `table.md`, `table.csv` and the figure
next to committed rows are written again, so that they look as today's code makes them.
"""

from __future__ import annotations

import re
import shlex
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from harness.common.errors import HarnessError, RequestError, unknown
from harness.common.files import write_atomically
from harness.common.sources import ROOT
from harness.contracts.tasks import SCALES
from harness.plan.registry import Registry
from harness.show import overview, page, scatter, stored
from harness.show.report import render
from harness.show.report.claims import told
from harness.show.report.figure import as_bytes, drawing
from harness.show.report.formats import number, with_interval
from harness.show.report.layout import SETTING
from harness.show.report.selection import interval_of, value_of
from harness.show.report.tables import EARLIER, Grid, Section
from harness.show.stored import Stored

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_START = r"<!-- (table|value|verdicts|overview)( [^>]*?)? -->"
BLOCK = re.compile(rf"({_START})((?:(?!<!-- (?:table|value|verdicts|overview)\b).)*?)(<!-- end -->)", re.DOTALL)
LABELS = ("row", "column")
FIGURE = ROOT / "docs" / "overview.svg"


def filled(text: str, results: Path, where: str = "text") -> str:
    """The text with every block filled from the committed rows under `results`.

    Raises `RequestError` naming the block that asks for what is not there.
    """
    source = _Source(results)
    if text.count("<!-- end -->") != len(BLOCK.findall(text)):
        line = next((n for n, line in enumerate(text.splitlines(), 1) if _is_odd(line)), 1)
        raise RequestError(f"{where} line {line}: a mark without its `<!-- end -->`, or of a kind other than {_KINDS}")

    def fill(found: re.Match[str]) -> str:
        start, kind, arguments, _, end = found.groups()
        try:
            made = KINDS[kind](source, *_parsed(arguments or ""))
        except HarnessError as error:
            line = text[: found.start()].count("\n") + 1
            raise RequestError(f"{where} line {line}: {error}") from error
        return f"{start}{made}{end}" if kind == "value" else f"{start}\n\n{made}\n\n{end}"

    return BLOCK.sub(fill, text)


def figure(results: Path) -> str:
    """The overview figure of the committed rows, as SVG."""
    return scatter.draw(overview.marks(committed(results), Registry())).decode()


def tables(results: Path) -> Iterator[tuple[Path, str]]:
    """Path and text of every committed `table.md` and `table.csv`."""
    for one in committed(results):
        folder, table = _folder(one, results), one.table()
        yield folder / "table.md", render.markdown(table)
        yield folder / "table.csv", render.as_csv(table)


def figures(results: Path) -> Iterator[tuple[Path, Figure]]:
    """Path, without its ending, and figure of every committed recipe that has one."""
    for one in committed(results):
        drawn = drawing(one.recipe, one.scale, one.rows, one.numbers, cells=one.cells, machine=one.machine)
        if drawn is not None:
            yield _folder(one, results) / "figure", drawn


@cache
def committed(results: Path) -> tuple[Stored, ...]:
    """All committed rows, read once. Raises `RequestError` for what cannot be read: nothing is published without it."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        try:
            return tuple(stored.stored(results, Registry(), (stored.MEASURED,)))
        except UserWarning as left_out:
            raise RequestError(str(left_out)) from None


def _folder(one: Stored, results: Path) -> Path:
    return results / stored.MEASURED / one.recipe.name / one.scale


_KINDS = "table, value, verdicts and overview"


def _is_odd(line: str) -> bool:
    """Whether a line opens a comment that is no block's, or closes none."""
    return "<!--" in BLOCK.sub("", line) and not re.fullmatch(rf"{_START}|<!-- end -->", line.strip())


class _Source:
    """Committed rows by recipe and scale."""

    def __init__(self, results: Path) -> None:
        self.results = results

    def of(self, recipe: str, scale: str) -> Stored:
        if scale not in SCALES:
            raise unknown("scale", scale, SCALES)
        found = {one.recipe.name: one for one in committed(self.results) if one.scale == scale}
        if recipe not in found:
            raise unknown("recipe", recipe, found, f"with committed rows at scale {scale}")
        return found[recipe]


Options = Mapping[str, str]


def _table(source: _Source, names: Sequence[str], options: Options) -> str:
    table = source.of(*names).table()
    patterns = options.get("rows", "*")
    columns = [name.strip() for name in options["columns"].split("|")] if "columns" in options else table.lead.header
    labelled = [name for name in LABELS if name not in columns] if "columns" in options else []
    grids = [grid for grid in (table.lead, table.details) if grid.header]
    places = (
        _with_paper(grids, [_place(grids, name) for name in (*labelled, *columns)])
        if "columns" in options
        else [(0, place) for place in range(len(columns))]
    )
    header = [grids[g].header[i] for g, i in places]
    ours = [line for section in _ours(grids[0]) for line in section.lines]
    measured = [(line[0], line[1]) for line in ours if line[2] != "not run"]
    by_cell = [{(line[0], line[1]): line for s in _ours(grid) for line in s.lines} for grid in grids]
    lines = [
        [by_cell[g].get(cell, [""] * len(grids[g].header))[i] for g, i in places]
        for cell in measured
        if _matches(" / ".join(part for part in cell if part), patterns)
    ]
    if not lines:
        raise RequestError(f"no row of {names[0]} is called {patterns}")
    kept = [i for i, head in enumerate(header) if head != "column" or len({line[i] for line in lines}) > 1]
    return render.markdown_table([header[i] for i in kept], [[line[i] for i in kept] for line in lines])


def _ours(grid: Grid) -> list[Section]:
    """The rows that lead: those of the recipe's cells, and those of before it changed."""
    return [section for section in grid.sections if section.heading in ("", EARLIER)]


def _place(grids: Sequence[Grid], name: str) -> tuple[int, int]:
    """Which grid has this column, and where."""
    for number_, grid in enumerate(grids):
        for place, head in enumerate(map(_plain, grid.header)):
            if _plain(name) in (head, head.partition(" vs ")[0]):
                return number_, place
    raise unknown("column", name, [head for grid in grids for head in grid.header])


def _plain(head: str) -> str:
    """A column's head without its arrow."""
    return head.replace("_", " ").rstrip(" ↑↓").strip()


def _with_paper(grids: Sequence[Grid], places: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    found = []
    for grid, place in places:
        found.append((grid, place))
        if grids[grid].header[place + 1 : place + 2] == ["paper"] and (grid, place + 1) not in places:
            found.append((grid, place + 1))
    settings = [(grid, grids[grid].header.index(SETTING)) for grid, _ in found[-1:] if SETTING in grids[grid].header]
    papers = any(grids[grid].header[place] == "paper" for grid, place in found)
    return found + [one for one in settings if papers and one not in found]


def _value(source: _Source, names: Sequence[str], options: Options) -> str:
    rows = {row["cell"]: row for row in source.of(*names).newest()}
    if options.get("cell") not in rows:
        raise unknown("cell", options.get("cell", ""), rows, names[0])
    row, metric = rows[options["cell"]], options.get("metric", "speedup")
    value = value_of(row, metric)
    if value is None:
        raise unknown("metric", metric, [*row["metrics"], *row["counters"]], row["cell"])
    if "digits" in options:
        return number(value, int(options["digits"]))
    return with_interval(value, interval_of(row, metric))


def _verdicts(source: _Source, names: Sequence[str], options: Options) -> str:
    judged = source.of(*names).verdicts()
    groups = {"claims": judged.claims, "targets": judged.targets}
    wanted = [options["of"]] if "of" in options else list(groups)
    lines = []
    for here, elsewhere in (told(groups[name]) for name in wanted):
        lines += [f"- **{verdict.outcome}**: {verdict.sentence}" for verdict in here] + [f"- {elsewhere}"] * bool(
            elsewhere
        )
    return "\n".join(lines)


def _overview(source: _Source, names: Sequence[str], options: Options) -> str:
    every = overview.marks(committed(source.results), Registry())
    wanted = options.get("rows", "*")
    lines = [f"{mark.name} / {mark.task} / {mark.baseline}" for mark in every]
    for pattern in wanted.split("|"):
        if not any(_matches(name, pattern) for name in lines):
            raise RequestError(f"no line of the overview is called {pattern}")
    return page.overview_table([mark for mark, name in zip(every, lines, strict=True) if _matches(name, wanted)])


def _matches(name: str, patterns: str) -> bool:
    return any(fnmatchcase(name, pattern.strip()) for pattern in patterns.split("|"))


KINDS: Mapping[str, Callable[[_Source, Sequence[str], Options], str]] = {
    "table": _table, "value": _value, "verdicts": _verdicts, "overview": _overview,
}  # fmt: skip


def _parsed(arguments: str) -> tuple[list[str], dict[str, str]]:
    """Recipe and scale, and what is given as `name=value`."""
    parts = shlex.split(arguments)
    options = dict(part.split("=", 1) for part in parts if "=" in part)
    return [part for part in parts if "=" not in part], options


def main(arguments: Sequence[str]) -> int:
    """Fill files, or with `--check` only say which are stale. Returns the exit code."""
    check = "--check" in arguments
    results = ROOT / "results"
    stale = []
    for path, after in _made([Path(argument) for argument in arguments if argument != "--check"], results):
        if not path.exists() or path.read_text(encoding="utf-8") != after:
            stale.append(path)
            if not check:
                write_atomically(path, after)
    for path, drawn in figures(results):
        after_bytes, svg = as_bytes(drawn, "svg"), path.with_suffix(".svg")
        if not svg.exists() or svg.read_bytes() != after_bytes:
            stale.append(svg)
            if not check:
                write_atomically(svg, after_bytes)
                write_atomically(path.with_suffix(".png"), as_bytes(drawn, "png"))
    if stale:
        print(f"{'stale' if check else 'filled'}: {', '.join(map(str, stale))}")
    return int(bool(stale) and check)


def _made(pages: Sequence[Path], results: Path) -> Iterator[tuple[Path, str]]:
    """Path and text of everything that is text: the overview figure, pages, tables."""
    yield FIGURE, figure(results)
    for path in pages:
        if not path.exists():
            raise RequestError(f"there is no file {path}")
        yield path, filled(path.read_text(encoding="utf-8"), results, str(path))
    yield from tables(results)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except HarnessError as error:
        sys.exit(f"error: {error}")
