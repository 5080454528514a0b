"""The tables of a recipe: measured next to published. They are pivots of the frame, with text in every cell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pandas as pd

from harness.rows import OWN, Row, metric_among
from harness.show import notes
from harness.show.claims import Verdict, Verdicts, told
from harness.show.formats import NOTHING, duration, number, timespan, with_interval
from harness.show.stored import Stored

SPEEDUP, LATENCY = "speedup", "latency_s"
IN_PLACES = (SPEEDUP, "hot_loop_speedup", LATENCY, "baseline_latency_s", "open_s", "fit_s")  # have columns of their own
SHOWN_METRICS, SHOWN_COUNTERS = 4, 2  # by default, when the recipe names no columns
SETTING = "published setting"
TWO_SIDES = "named in the row"  # of a timed analysis: what its decision compares
EARLIER = "Measured when the recipe had other rows: labels and settings are those of then"
OUTPUT = "output"  # the label of a worked example's text that is the row's own
WORDS = ("row", "column", "vs", "decision", SETTING)  # columns of text, to the left
CLAIMS, TARGETS = "Claims of the paper", "Targets of this bench"


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
    def commands(self) -> list[str]:
        """What would settle the verdicts that are shown."""
        return list(dict.fromkeys(v.command for _, here, _ in self.judged for v in here if v.command))

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
    arrows = any(head.endswith(("↑", "↓")) for head, _ in [*layout.lead, *layout.details])
    directions = ["↑: higher is better, ↓: lower."] * arrows
    return Table(
        title=one.title,
        above=notes.above(one),
        lead=layout.grid(layout.lead, blanks=True),
        details=layout.grid(layout.details, blanks=False),
        notes=[*notes.below(one, used, layout.one_setting), *directions, *layout.unknown],
        verdicts=verdicts,
        about=notes.about(one.rows),
        alone=pd.DataFrame(
            [(n.row, n.column, n.metric, f"{n.text} {n.unit}".strip(), n.table)
             for n in one.numbers if n not in used],
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

    @cached_property
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
        if self.timed:
            heads += self._measured(LATENCY)
            names.append(LATENCY)
            heads.append(("items", pd.Series({key: _items(row) for key, row in self.rows.items()}, dtype=object)))
        return heads + self._setting_column(names)

    @cached_property
    def details(self) -> Heads:
        heads, names = self._all(self.others), list(self.others)
        if self.timed and self.compared:
            heads += self._all(["baseline_latency_s", "hot_loop_speedup", "open_s"])
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
    def unknown(self) -> list[str]:
        """Metrics that the recipe names, that are not the harness's own and that no finished row has."""
        figure = self.one.recipe.figure
        drawn = [figure.x, figure.y, figure.beside, *figure.parts] if figure else []
        params = {name for row in self.one.good for side in row.params.values() for name in side}
        known = {*self.texts, *IN_PLACES, *params, ""}
        names = dict.fromkeys([*self.names, *self.others, *drawn])
        own = {name for name in names if any(metric.called(name) for metric in OWN)}  # memory, say, is not always asked
        lost = [name for name in names if name not in known | own and _parameter(name) is None]
        return [f"Named by the recipe, in no row (measured before, or misspelt): {', '.join(lost)}."] * bool(
            lost and self.one.good
        )

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


def sections(grid: pd.DataFrame) -> Iterator[tuple[str, list[list[str]]]]:
    """Heading and lines of each section of a table."""
    for heading, lines in grid.groupby(level=0, sort=False) if not grid.empty else ():
        yield str(heading), lines.to_numpy().tolist()
