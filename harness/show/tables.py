"""The tables of a recipe: measured next to published. Pivots of the frame, as text, Markdown, LaTeX and CSV."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from harness.common.files import write_atomically
from harness.rows import OWN, Row, metric_among
from harness.show import notes
from harness.show.claims import COLOURS, Verdict, Verdicts, told
from harness.show.formats import NOTHING, duration, number, timespan, with_interval
from harness.show.stored import Stored

SPEEDUP, LATENCY = "speedup", "latency_s"
IN_PLACES = (SPEEDUP, "hot_loop_speedup", LATENCY, "baseline_latency_s", "fit_s")  # metrics with columns of their own
SHOWN_METRICS, SHOWN_COUNTERS = 4, 2  # by default, when the recipe names no columns
SETTING = "published setting"
IN_CSV = ("row", "column", "status", "machine", "decision", "metric", "value", "low", "high", "unit", "paper", "ratio")
TWO_SIDES = "named in the row"  # of a timed analysis: what its decision compares
EARLIER = "Measured when the recipe had other rows: labels and settings are those of then"
OUTPUT = "output"  # the label of a worked example's text that is the row's own
WORDS = ("row", "column", "vs", "decision", SETTING)  # columns of text, to the left
CLAIMS, TARGETS = "Claims of the paper", "Targets of this bench"
SHADES = {
    "faster": "green", "slower": "red", "FAILED": "red", "TIMEOUT": "red", "KILLED": "red", "not run": "yellow",
}  # fmt: skip


@dataclass(frozen=True)
class Table:
    """A recipe's page of text.

    lead: what a reader came for: qualities, speedup, decision, the paper's numbers. details: all else of the same
    cells. Both have a line for each cell, indexed by (heading of its section, cell). above: what -> text; notes:
    sentences for below; about: where it holds, name and value of what the task and its models are; alone: published
    numbers without a measured one; examples: what it is about (label -> text), and cell -> what it made of it.
    """

    title: str
    above: Mapping[str, str]
    lead: pd.DataFrame
    details: pd.DataFrame
    notes: Sequence[str]
    verdicts: Verdicts
    about: Sequence[tuple[str, str, str]]
    alone: pd.DataFrame
    examples: Sequence[tuple[Mapping[str, str], Mapping[str, str]]]
    numbers: pd.DataFrame = field(repr=False)  # the recipe's part of the frame

    @property
    def judged(self) -> Iterator[tuple[str, list[Verdict], str]]:
        """Heading, verdicts at this scale, and how many stand at others: of claims, then of targets."""
        for heading, group in ((CLAIMS, self.verdicts.claims), (TARGETS, self.verdicts.targets)):
            if group:
                yield heading, *told(group)


def build(one: Stored, numbers: pd.DataFrame, verdicts: Verdicts) -> Table:
    """The table of one recipe at one scale. numbers: its part of the frame."""
    layout = _Layout(one, numbers)
    names = [*layout.names, *layout.others, SPEEDUP, LATENCY]
    shown = numbers[numbers.metric.isin(names) & numbers.published.notna()]
    used = list(dict.fromkeys(shown.published))
    return Table(
        title=one.title,
        above=notes.above(one),
        lead=layout.grid(layout.lead(), blanks=True),
        details=layout.grid(layout.details(), blanks=False),
        notes=[*notes.below(one, used, layout.one_setting), *layout.directions],
        verdicts=verdicts,
        about=notes.about(one.rows),
        alone=pd.DataFrame(
            [(n.row, n.column, n.metric, f"{n.text} {n.unit}".strip(), n.table)
             for n in one.numbers.numbers if n not in used],
            columns=["row", "column", "metric", "value", "source"],
        ),
        examples=_examples(one.rows),
        numbers=numbers,
    )  # fmt: skip


Heads = list[tuple[str, "pd.Series[str]"]]  # head of a column, and its text by (apart, cell)


class _Layout:
    """Which columns the two tables have."""

    def __init__(self, one: Stored, numbers: pd.DataFrame) -> None:
        self.one = one
        good = one.good
        self.rows = {(words, row.cell): row for words, row in one.every}
        self.names = [n for n in one.recipe.metrics or _default_columns(good) if n not in IN_PLACES]
        self.others = [n for n in one.recipe.details if n not in IN_PLACES]
        self.metrics = {name: metric_among(good, name) for name in (*self.names, *self.others, *IN_PLACES)}
        numbers = numbers[(numbers.status == "ok") & numbers.metric.notna()]
        texts = numbers.assign(shown=[_shown(line) for line in numbers.itertuples()])
        self.texts = texts.pivot(index=["apart", "cell"], columns="metric", values="shown")
        printed = texts[texts.published.notna()]
        printed = printed.assign(shown=[_printed(line) for line in printed.itertuples()])
        self.papers = printed.pivot(index=["apart", "cell"], columns="metric", values="shown")
        self.settings = printed.pivot(index=["apart", "cell"], columns="metric", values="setting")
        self.timed = any(row.processes for row in good)
        self.compared = any(row.speed_baseline for row in good)
        self.baselines = {key: self._baseline(row) for key, row in self.rows.items() if row.status == "ok"}
        found = set(self._setting([*self.names, *self.others, SPEEDUP, LATENCY])) - {""}
        self.one_setting = found.pop() if len(found) == 1 else ""

    def lead(self) -> Heads:
        heads, names = self._all(self.names), list(self.names)
        if self.compared:
            found = {name for name in self.baselines.values() if name}
            heads += self._measured(SPEEDUP, f"speedup vs {next(iter(found))}" if len(found) == 1 else "speedup")
            if len(found) != 1:
                heads.append(("vs", pd.Series(self.baselines, dtype=object).replace("", NOTHING)))
            decisions = {key: row.decision or NOTHING for key, row in self.rows.items()}
            heads.append(("decision", pd.Series(decisions, dtype=object)))
            names.append(SPEEDUP)
        elif self.timed:  # then the time is what it was measured for
            heads += self._measured(LATENCY)
            names.append(LATENCY)
        if self.timed:
            heads.append(("items", pd.Series({key: _items(row) for key, row in self.rows.items()}, dtype=object)))
        return heads + self._setting_column(names)

    def details(self) -> Heads:
        heads, names = self._all(self.others), list(self.others)
        if self.timed and self.compared:
            heads += self._measured(LATENCY) + self._all(["baseline_latency_s", "hot_loop_speedup"])
            names.append(LATENCY)
        return heads + self._all(["fit_s"]) + self._setting_column(names)

    def grid(self, heads: Heads, blanks: bool) -> pd.DataFrame:
        """A line for each cell, indexed by (section, cell). blanks: cells of the recipe without a row say so."""
        rows = {cell: row for (words, cell), row in self.rows.items() if not words}
        planned = [cell.name for cell in self.one.cells]
        if not heads:
            heads = [("status", pd.Series(dtype=object))] if blanks else []
        if not heads:
            return pd.DataFrame()
        of_today = not rows or any(name in rows for name in planned) or not planned  # else measured as it was before
        lines: dict[tuple[str, str], list[str]] = {}
        for cell in self.one.cells:
            if cell.name in rows:
                lines["", cell.name] = self._line(("", cell.name), heads)
            elif blanks and of_today:
                lines["", cell.name] = _blank(cell.row, cell.column, "not run", len(heads))
        for words, name in self.rows:
            heading = f"Measured apart, times not comparable: {words}" if words else EARLIER if planned else ""
            if (words or name not in planned) and (heading, name) not in lines:
                lines[heading, name] = self._line((words, name), heads)
        return pd.DataFrame(
            list(lines.values()), columns=["row", "column", *(head for head, _ in heads)],
            index=pd.MultiIndex.from_tuples(list(lines), names=["section", "cell"]) if lines else None,
        )  # fmt: skip

    def _line(self, key: tuple[str, str], heads: Heads) -> list[str]:
        row = self.rows[key]
        if row.status != "ok":
            return _blank(row.row, row.column, row.status.upper(), len(heads))
        return [row.row, row.column, *(text if isinstance(text := s.get(key), str) else NOTHING for _, s in heads)]

    @property
    def directions(self) -> list[str]:
        """What the arrows in the heads mean, where there are any."""
        arrows = any(head.endswith(("↑", "↓")) for head, _ in [*self.lead(), *self.details()])
        return ["↑: higher is better, ↓: lower."] * arrows

    def _all(self, names: Sequence[str]) -> Heads:
        """The columns of all of these that a row has, or of parameters."""
        has = [n for n in names if n in self.texts or _parameter(n) or (n not in IN_PLACES and not self.one.good)]
        return [head for name in has for head in self._measured(name)]

    def _measured(self, name: str, head: str = "") -> Heads:
        """A metric or parameter, and the paper's number where one stands next to it."""
        if (parameter := _parameter(name)) is not None:
            side, key = parameter
            values = {place: str(row.params[side].get(key, NOTHING)) for place, row in self.rows.items()}
            return [(key, pd.Series(values, dtype=object))]
        metric = self.metrics[name]
        head = head or (metric.label if name in IN_PLACES else metric.heading)
        found = [(head, self.texts.get(name, pd.Series(dtype=object)))]
        return [*found, ("paper", self.papers[name])] if name in self.papers else found

    def _setting(self, names: Sequence[str]) -> pd.Series[str]:
        """Where the published numbers next to these are from, by row."""
        among = self.settings.reindex(columns=[name for name in names if name in self.settings])
        return among.apply(lambda line: "; ".join(dict.fromkeys(line.dropna())), axis=1)

    def _setting_column(self, names: Sequence[str]) -> Heads:
        if self.one_setting or not any(name in self.papers for name in names):
            return []
        return [(SETTING, self._setting(names).replace("", NOTHING))]

    def _baseline(self, row: Row) -> str:
        """The speed baseline as a line of the table names it: the row that is that very method, without its column
        where it stands in the line's own; else the method and the parameters in which it differs from the row's."""
        if row.speed_baseline is None:
            return TWO_SIDES if row.decision else ""
        method, params = row.speed_baseline["method"], row.speed_baseline["params"]
        alike = [one for one in self.one.good if (one.method, one.params["method"]) == (method, params)]
        same = [one for one in alike if one.params["task"] == row.params["task"]]
        if not same and row.column and (model := row.hashes.get("model")):  # its quality on another number of items
            same = [one for one in alike if (one.column, one.hashes.get("model")) == (row.column, model)]
        if same:
            return min(same, key=lambda one: one.column != row.column).cell.removesuffix(f" / {row.column}")
        own = row.params["method"] if method == row.method else {}
        differing = [f"{name}={value}" for name, value in params.items() if name in own and own[name] != value]
        return str(method) + (f" ({', '.join(differing)})" if differing else "")


def _blank(row: str, column: str, status: str, heads: int) -> list[str]:
    """The line of a cell without results."""
    return [row, column, status, *[NOTHING] * (heads - 1)]


def _parameter(name: str) -> tuple[str, str] | None:
    """`method.k` -> (`method`, `k`); None for the name of a metric."""
    side, dot, parameter = name.partition(".")
    return (side, parameter) if dot and side in ("method", "task") else None


def _shown(line: Any) -> str:
    interval = None if pd.isna(line.low) else (line.low, line.high)
    return (timespan if line.unit == "s" else with_interval)(line.value, interval)


def _printed(line: Any) -> str:
    """The published number next to a measured one, with the ratio where it means something."""
    found, value = line.published, line.paper
    shown = duration(value) if line.unit == "s" else found.text if value == found.value else number(value)
    return shown + ("" if pd.isna(line.ratio) else f" (×{number(line.ratio, 3)})")


def _items(row: Row) -> str:
    """Items that were timed over all processes, and how many different ones, where some were timed twice."""
    timed, different = row.value("timed_items"), row.value("different_items")
    return number(timed) + (f" ({number(different)} different)" if different not in (None, timed) else "")


def _default_columns(rows: Sequence[Row]) -> list[str]:
    """The first few metrics and counters, in the order in which rows hold them, without the harness's own times, speeds
    and memory."""
    own = {metric.name for metric in OWN if metric.kind in ("time", "speed", "memory")}
    metrics = dict.fromkeys(n for row in rows for n in [*row.metrics, *row.ratios] if n not in own)
    counters = dict.fromkeys(
        n for row in rows for n in row.counters if row.metric(n).kind != "memory" and n not in metrics
    )
    return [*list(metrics)[:SHOWN_METRICS], *list(counters)[:SHOWN_COUNTERS]]


def _examples(rows: Sequence[Row]) -> list[tuple[Mapping[str, str], Mapping[str, str]]]:
    """The rows' worked examples, those of the same matter together."""
    found: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}
    for row in rows:
        for example in row.examples:
            given = tuple((label, text) for label, text in example.items() if label != OUTPUT)
            outputs = found.setdefault(given, {})
            if OUTPUT in example:
                outputs[row.cell] = example[OUTPUT]
    return [(dict(given), outputs) for given, outputs in found.items()]


# ---------------------------------------------------------------- on the terminal


def show(table: Table, console: Console) -> None:
    """Print what a reader came for: the leading table, its notes, the worked examples and the verdicts."""
    console.print(Text(table.title, style="bold"))
    console.print(_pairs(table.above.items()))
    fitting, left_out = _fitting(table.lead, console.width)
    console.print(_rich(fitting))
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
    for command in _commands(table):
        console.print(Text(f"To settle: {command}", style="bright_black"), soft_wrap=True)


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


def _commands(table: Table) -> list[str]:
    """What would settle the verdicts that are shown."""
    return list(dict.fromkeys(v.command for _, here, _ in table.judged for v in here if v.command))


def _fitting(grid: pd.DataFrame, width: int) -> tuple[pd.DataFrame, list[str]]:
    """The table with intervals on a second line where it is too wide otherwise, without the columns at its right end
    that do not fit then, and the names of these. Labels, speedup and decision stay."""
    heads = list(grid)
    columns = [grid.iloc[:, place].tolist() for place in range(len(heads))]

    def needs(place: int, apart: str) -> int:
        words = [word for text in (heads[place].replace("_", " "), *columns[place]) for word in text.split(apart)]
        return 2 + max(map(len, words), default=0)

    if sum(needs(place, "\n") for place in range(len(heads))) <= width:
        return grid, []
    kept = list(range(len(heads)))
    for place in reversed(range(2, len(heads))):
        total = sum(needs(i, " " if heads[i] in WORDS else " [") for i in kept)
        if total > width and heads[place] != "decision" and not heads[place].startswith("speedup"):
            kept.remove(place)
    left_out = [heads[place] for place in range(len(heads)) if place not in kept]
    return grid.iloc[:, kept].map(lambda text: text.replace(" [", "\n[")), left_out


def _rich(grid: pd.DataFrame) -> RichTable:
    rich = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))
    for head in grid:
        rich.add_column(Text(head.replace("_", " ")), justify="left" if head in WORDS else "right")
    for heading, lines in sections(grid):
        if heading:
            rich.add_section()
            rich.add_row(Text(heading, style="bright_black"))
        for line in lines:
            rich.add_row(*(Text(cell, style=SHADES.get(cell, "")) for cell in line))
    return rich


def _pairs(lines: Iterable[tuple[str, str]], colours: Mapping[Any, str] | None = None) -> RichTable:
    """Labels, grey or in their colour, and to the right of each its text."""
    grid = RichTable(box=None, show_header=False, pad_edge=False)
    grid.add_column(no_wrap=True)
    grid.add_column()
    for label, text in lines:
        grid.add_row(Text(label, (colours or {}).get(label, "bright_black")), Text(text))
    return grid


def sections(grid: pd.DataFrame) -> Iterator[tuple[str, list[list[str]]]]:
    """Heading and lines of each section of a table."""
    for heading, lines in grid.groupby(level=0, sort=False) if not grid.empty else ():
        yield str(heading), lines.to_numpy().tolist()


# ---------------------------------------------------------------- in files


def markdown(table: Table) -> str:
    """The table as a Markdown page."""
    parts = [f"# {table.title}", "\n".join(f"- {name}: {text}" for name, text in table.above.items())]
    parts += _markdown_grid(table.lead)
    for heading, here, others in table.judged:
        lines = [[v.outcome, v.sentence] for v in here]
        word = "claim" if heading == CLAIMS else "target"
        parts += [f"## {heading}", *[markdown_table(["verdict", word], lines)] * bool(lines), *[others] * bool(others)]
    parts += [f"To settle: `{command}`" for command in _commands(table)]
    if table.notes:
        parts += ["## Notes", "\n".join(f"- {note}" for note in table.notes)]
    parts += ["## Examples"] * bool(table.examples)
    for place, (given, outputs) in enumerate(table.examples, 1):
        parts.append(markdown_table([str(place), ""], [*given.items(), *outputs.items()]))
    if not table.details.empty:
        parts += ["## Details", *_markdown_grid(table.details)]
    if table.about:
        parts += ["## Task and models", markdown_table(["of", "fact", "value"], table.about)]
    if not table.alone.empty:
        parts += ["## Published only", markdown_table(list(table.alone), table.alone.to_numpy().tolist())]
    return "\n\n".join(parts) + "\n"


def as_csv(table: Table) -> str:
    """The recipe's part of the frame, a line for each row and number, without what its rows have in common or in
    `rows.jsonl`."""
    text: str = table.numbers[list(IN_CSV)].to_csv(index=False, lineterminator="\n")
    return text


def as_latex(table: Table) -> str:
    """The leading table of the rows that lead, for the packages booktabs and amssymb, with verdicts below it."""
    lead = table.lead.loc[[""]] if "" in table.lead.index else table.lead
    lead = lead.loc[:, [head != "column" or lead[head].any() for head in lead]]
    judged = [f"{v.outcome}: {v.sentence}" for _, here, _ in table.judged for v in here]
    caption = f"{table.title}. {' '.join(f'{name}: {text}.' for name, text in table.above.items())}"
    below = [r"\par\smallskip\raggedright\footnotesize " + r" \\ ".join(map(escaped, judged))] if judged else []
    return floating(lead, caption, below)


def floating(lines: pd.DataFrame, caption: str, below: Sequence[str] = ()) -> str:
    """A LaTeX `table` with a caption above."""
    columns = "".join("l" if head in WORDS else "r" for head in lines)
    texts = lines.map(escaped).set_axis(list(map(escaped, lines)), axis=1)
    tabular = texts.to_latex(index=False, escape=False, column_format=columns)
    return "\n".join([r"\begin{table}", r"\caption{" + escaped(caption) + "}", tabular, *below, r"\end{table}"])


_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "–": "--", "×": r"$\times$", "∞": r"$\infty$",
    "↑": r"$\uparrow$", "↓": r"$\downarrow$", "µ": r"$\mu$", "≥": r"$\geq$", "≤": r"$\leq$", "λ": r"$\lambda$",
    "β": r"$\beta$", "τ": r"$\tau$", "γ": r"$\gamma$", "∆": r"$\Delta$", "Δ": r"$\Delta$",
}  # fmt: skip


def escaped(text: str) -> str:
    """Text as LaTeX writes it."""
    return "".join(_LATEX.get(character, character) for character in text)


def write(table: Table, folder: Path) -> list[Path]:
    """Write `table.md` and `table.csv`, each whole or not at all. Raises `MachineError` when the disk is full."""
    files = {folder / "table.md": markdown(table), folder / "table.csv": as_csv(table)}
    for path, text in files.items():
        write_atomically(path, text)
    return list(files)


def _markdown_grid(grid: pd.DataFrame) -> Iterator[str]:
    for heading, lines in sections(grid):
        yield from [f"**{heading}**"] * bool(heading)
        yield markdown_table(list(grid), lines)


def markdown_table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A Markdown table; the cells' own bars and line breaks are kept out of its way."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

    return "\n".join([line(header), line(["---"] * len(header)), *map(line, lines)])
