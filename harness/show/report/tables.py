"""Rows, a recipe and published numbers -> one table: measured next to published, with what a reader must know of both.

`build` makes the table as plain text cells and as records for a CSV; `harness.show.report.render` prints and writes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.contracts.rows import Row
from harness.contracts.tasks import Scale
from harness.measure.own_metrics import OWN, among, of
from harness.plan.cell import Cell
from harness.plan.recipe import Recipe
from harness.show.report.claims import Verdicts
from harness.show.report.context import facts, machine_line, notes
from harness.show.report.formats import NOTHING, duration, number, timespan, with_interval
from harness.show.report.published import Number, Published, comparable, places
from harness.show.report.selection import by_machine, interval_of, machine_of, value_of

SPEEDUP, HOT, LATENCY, BASELINE_LATENCY, FIT = (
    "speedup", "hot_loop_speedup", "latency_s", "baseline_latency_s", "fit_s",
)  # fmt: skip
COLUMNS = (SPEEDUP, HOT, LATENCY, BASELINE_LATENCY, FIT)  # metrics with columns of their own
SHOWN_METRICS, SHOWN_COUNTERS = 4, 2  # by default, when the recipe names no columns
SETTING = "published setting"
OUTPUT = "output"  # the label of a worked example's text that is the row's own


@dataclass(frozen=True, slots=True)
class Section:
    """Lines of one machine. `heading` is empty for the machine that the report is about."""

    heading: str
    lines: list[list[str]]


@dataclass(frozen=True, slots=True)
class Example:
    """One worked example: what it is about (label -> text), and what each row made of it (cell -> text)."""

    given: dict[str, str]
    outputs: dict[str, str]


@dataclass(frozen=True, slots=True)
class Table:
    """A finished table. `facts` and `notes` are sentences for above and below it."""

    title: str
    facts: list[str]
    header: list[str]
    sections: list[Section]
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
    layout = _Layout(recipe, scale, published, cells, [row for group in machines for row in group])
    present = {row["cell"]: layout.line(row) for row in ours}
    missing = {c.name: layout.blank(c.row, c.column, "not run") for c in cells if c.name not in present}
    first = [(present | missing)[name] for name in names]
    first += [line for name, line in present.items() if name not in names]
    others = [
        Section(f"Another machine, times not comparable: {machine_line(group)}", [*map(layout.line, group)])
        for group in machines[1:]
    ]
    return Table(
        title=f"{recipe.name}, scale {scale}: {recipe.title}",
        facts=facts(recipe, scale, ours),
        header=layout.header,
        sections=[Section("", first), *others],
        notes=notes(ours, layout.used, layout.one_setting, comparable_data=layout.data_of_paper) + layout.directions(),
        published_only=layout.unmatched(),
        verdicts=verdicts or Verdicts(),
        examples=_examples(ours),
        records=[layout.record(row) for group in machines for row in group],
    )


class _Layout:
    """Which columns the table has, and how one row fills them."""

    def __init__(
        self, recipe: Recipe, scale: Scale, published: Published, cells: Sequence[Cell], rows: Sequence[Row]
    ) -> None:
        self.published = published
        self.data_of_paper = scale in recipe.data_of_paper
        good = [row for row in rows if row["status"] == "ok"]
        self.names = [name for name in recipe.metrics or _default_columns(good) if name not in COLUMNS]
        self.numbers = (*self.names, SPEEDUP, LATENCY)  # next to which published ones may stand
        self.metrics = {name: among(good, name) for name in (*self.names, *COLUMNS)}
        self.cells: dict[tuple[str, str, str], list[Row]] = {}
        for row in good:
            self.cells.setdefault(
                (row["method"], repr(row["params"]["method"]), repr(row["params"]["task"])), []
            ).append(row)
        baselines = {self._baseline(row) for row in good if row["speed_baseline"]}
        self.one_baseline = baselines.pop() if len(baselines) == 1 else ""
        self.compared = bool(self.one_baseline or baselines)
        self.timed = any(row["timing"] for row in good)
        self.hot, self.paired, self.fitted = (
            any(row["metrics"].get(name) is not None for row in good) for name in (HOT, BASELINE_LATENCY, FIT)
        )
        labels = places(cells)
        self.printed = {
            (row["cell"], name): found
            for row in good
            if row["cell"] in labels
            if all(row["facts"].get(fact) == value for fact, value in recipe.published_where.items())
            for name in self.numbers
            if value_of(row, name) is not None and (found := published.lookup(*labels[row["cell"]], self.metrics[name]))
        }
        self.with_paper = {name for _, name in self.printed}
        self.used = list(dict.fromkeys(self.printed.values()))
        settings = {setting for row in good if (setting := self._settings(row))}
        self.one_setting = settings.pop() if len(settings) == 1 else ""
        self.header = self._header()

    def _header(self) -> list[str]:
        names = ["row", "column"]
        for name in self.names:
            names += [self._heading(name), *self._paper_heading(name)]
        if self.compared:
            names += [f"speedup vs {self.one_baseline}" if self.one_baseline else "speedup"]
            names += self._paper_heading(SPEEDUP)
            names += [self.metrics[HOT].label] if self.hot else []
            names += ["decision"] if self.one_baseline else ["vs", "decision"]
        if self.timed:
            names += [self.metrics[LATENCY].label, *self._paper_heading(LATENCY)]
            names += [self.metrics[BASELINE_LATENCY].label] if self.paired else []
            names += ["items"]
        names += [self.metrics[FIT].label] if self.fitted else []
        names += [SETTING] if self.printed and not self.one_setting else []
        return names if len(names) > 2 else [*names, "status"]

    def _heading(self, name: str) -> str:
        """Of a metric its label, unit and direction; of a parameter (`method.k`) its name."""
        parameter = _parameter(name)
        return parameter[1] if parameter else self.metrics[name].heading

    def _paper_heading(self, name: str) -> list[str]:
        return ["paper"] if name in self.with_paper else []

    def directions(self) -> list[str]:
        """What the arrows in the header mean, where there are any."""
        return ["↑: higher is better, ↓: lower."] if any(h.endswith(("↑", "↓")) for h in self.header) else []

    def line(self, row: Row) -> list[str]:
        if row["status"] != "ok":
            return self.blank(row["row"], row["column"], row["status"].upper())
        cells = [row["row"], row["column"]]
        for name in self.names:
            cells += [_measured(row, name), *self._paper(row, name)]
        if self.compared:
            decision = (row["timing"] or {}).get("decision") or NOTHING
            cells += [_measured(row, SPEEDUP), *self._paper(row, SPEEDUP)]
            cells += [_measured(row, HOT)] if self.hot else []
            cells += [decision] if self.one_baseline else [self._baseline(row) or NOTHING, decision]
        if self.timed:
            cells += [_measured(row, LATENCY), *self._paper(row, LATENCY)]
            cells += [_measured(row, BASELINE_LATENCY)] if self.paired else []
            cells += [_items(row)]
        cells += [_measured(row, FIT)] if self.fitted else []
        cells += [self._settings(row)] if self.printed and not self.one_setting else []
        return cells if len(cells) > 2 else [*cells, row["status"]]

    def blank(self, row: str, column: str, status: str) -> list[str]:
        """The line of a cell without results."""
        return [row, column, status, *[NOTHING] * (len(self.header) - 3)]

    def _baseline(self, row: Row) -> str:
        """The speed baseline as the table names it: the cell that is that very method, else the method's name and
        the parameters in which it differs from the row's."""
        baseline = row["speed_baseline"]
        if not baseline:
            return ""
        key = baseline["method"], repr(baseline["params"]), repr(row["params"]["task"])
        # of several cells with that method, which differ in their timing alone, the one in this row's own column
        same = sorted(self.cells.get(key, ()), key=lambda other: other["column"] != row["column"])
        cell = same[0]["cell"] if same else None
        own = row["params"]["method"] if baseline["method"] == row["method"] else {}
        differing = [f"{k}={v}" for k, v in baseline["params"].items() if k in own and own[k] != v]
        return cell or str(baseline["method"]) + (f" ({', '.join(differing[:3])})" if differing else "")

    def _paper(self, row: Row, name: str) -> list[str]:
        """The published number next to a measured one, with the ratio where it means something."""
        if name not in self.with_paper:
            return []
        found = self.printed.get((row["cell"], name))
        if found is None:
            return [NOTHING]
        value = found.as_measured(self.metrics[name])
        seconds = self.metrics[name].unit == "s"
        shown = duration(value) if seconds else found.text if value == found.value else number(value)
        ratio = self._ratio(row, name, found)
        return [shown + (f" (×{number(ratio, 3)})" if ratio is not None else "")]

    def _ratio(self, row: Row, name: str, found: Number) -> float | None:
        metric = of(row, name)
        measured, value = value_of(row, name), found.as_measured(metric)
        return measured / value if comparable(metric, self.data_of_paper) and measured is not None and value else None

    def _settings(self, row: Row) -> str:
        """Table and labels of the published numbers next to a row, as far as its own labels are others."""
        found = [n for name in self.numbers if (n := self.printed.get((row["cell"], name)))]
        return "; ".join(dict.fromkeys(_where(n, row) for n in found))

    def unmatched(self) -> list[list[str]]:
        """Published numbers of rows and settings that were not measured here."""
        return [
            [n.row, n.column, n.metric, f"{n.text} {n.unit}".strip(), n.table]
            for n in self.published.numbers
            if n not in self.used
        ]

    def record(self, row: Row) -> dict[str, Any]:
        """One CSV record: labels, status and every number of the row, intervals and published numbers next to them."""
        timing = row["timing"] or {}
        record: dict[str, Any] = {
            "recipe": row["recipe"], "scale": row["scale"], "row": row["row"], "column": row["column"],
            "method": row["method"], "task": row["task"], "status": row["status"],
            "machine": machine_of(row), "device": row["device"], "seed": row["seed"], "baseline": self._baseline(row),
            "decision": timing.get("decision"), "reason": timing.get("reason"),
            "error": (row["error"] or {}).get("message"),
        }  # fmt: skip
        record |= {name: _measured(row, name) for name in self.names if _parameter(name)}
        for name, value in {**row["metrics"], **row["counters"]}.items():
            record[name] = value
            if interval := interval_of(row, name):
                record[f"{name}_low"], record[f"{name}_high"] = interval
            if found := self.printed.get((row["cell"], name)):
                record[f"{name}_published"] = found.as_measured(of(row, name))
                record[f"{name}_published_setting"] = f"{found.table}: {found.row}, {found.column}"
                record[f"{name}_ratio"] = self._ratio(row, name, found)
        return record


def _where(number: Number, row: Row) -> str:
    """`Figure 3, WikiText-103` for `WikiText-103 / FoSS=0` next to a row `FoSS=0`."""
    column = number.column.removesuffix(row["column"]).removesuffix(" / ")
    parts = [number.table, "" if number.row == row["row"] else number.row, column]
    return ", ".join(part for part in parts if part)


def _parameter(name: str) -> tuple[str, str] | None:
    """`method.k` -> (`method`, `k`); None for the name of a metric."""
    side, dot, parameter = name.partition(".")
    return (side, parameter) if dot and side in ("method", "task") else None


def _measured(row: Row, name: str) -> str:
    """A metric or counter with its interval, or a parameter as text."""
    if (parameter := _parameter(name)) is not None:
        return str(row["params"][parameter[0]].get(parameter[1], NOTHING))
    shown = timespan if of(row, name).unit == "s" else with_interval
    return shown(value_of(row, name), interval_of(row, name))


def _items(row: Row) -> str:
    """Items that were timed over all processes, and how many different ones, where some were timed twice."""
    timing = row["timing"] or {}
    timed, different = timing.get("timed_items"), timing.get("items")
    return number(timed) + (f" ({number(different)} different)" if different not in (None, timed) else "")


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


def _default_columns(rows: Sequence[Row]) -> list[str]:
    """The first few metrics, but for times, speeds and memory of the harness's own, and the first few counters, but for
    memory, in the order in which rows hold them."""
    own = {metric.name for metric in OWN if metric.kind in ("time", "speed", "memory")}
    metrics = dict.fromkeys(n for row in rows for n in row["metrics"] if n not in own)
    counters = dict.fromkeys(
        n for row in rows for n in row["counters"] if of(row, n).kind != "memory" and n not in metrics
    )
    return [*list(metrics)[:SHOWN_METRICS], *list(counters)[:SHOWN_COUNTERS]]
